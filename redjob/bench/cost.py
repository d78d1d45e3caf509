"""What a part of a run cost: processor time of server, workers, scheduler and this process, a job."""

from __future__ import annotations

import time
from collections.abc import Sequence

from redjob.bench.bare import BareClient
from redjob.bench.meter import ServerCost, ServerMeter, process_cpu_us
from redjob.bench.processes import Service
from redjob.bench.result import Row


class CostMeter:
    """Begins when it is made; `server`, `workers` and the like are read by `into`."""

    def __init__(
        self,
        client: BareClient,
        *,
        workers: Sequence[Service] = (),
        schedulers: Sequence[Service] = (),
    ) -> None:
        self._server = ServerMeter(client)
        self._workers = [service.pid for service in workers]
        self._schedulers = [service.pid for service in schedulers]
        self._workers_us = process_cpu_us(self._workers)
        self._schedulers_us = process_cpu_us(self._schedulers)
        self._mine_s = time.process_time()

    def into(self, row: Row, jobs: int) -> ServerCost:
        """Write what was spent since into a row, a job; client time only where nobody else works."""
        cost = self._server.take()
        row.redis_us_per_job = round(cost.script_us / jobs, 2)
        row.redis_cpu_us_per_job = round(cost.cpu_us / jobs, 2)
        if self._workers:
            row.worker_cpu_us_per_job = _per_job(self._workers, self._workers_us, jobs)
        if self._schedulers:
            row.scheduler_cpu_us_per_job = _per_job(self._schedulers, self._schedulers_us, jobs)
        if not self._workers and not self._schedulers:
            row.client_cpu_us_per_job = round((time.process_time() - self._mine_s) / jobs * 1e6, 2)
        return cost


def _per_job(pids: list[int], before_us: float | None, jobs: int) -> float | None:
    now_us = process_cpu_us(pids)
    if now_us is None or before_us is None:
        return None
    return round((now_us - before_us) / jobs, 1)
