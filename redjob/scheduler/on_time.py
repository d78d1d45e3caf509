"""The wheel and its loop: sleeps until the next job is due and fires what is.

While calls are under way, what becomes due meanwhile collects, so that batches grow with the load
and a lone job pays for nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from redjob.calls.reads import Due
from redjob.errors import RedjobError
from redjob.scheduler.fire import BATCH, Batch, Firer
from redjob.scheduler.outage import Outage
from redjob.scheduler.owner import Slot
from redjob.scheduler.server_clock import ServerClock
from redjob.scheduler.wheel import TimingWheel

_PIPELINES = 3  # one at the server, one on its way, one being made
_PIPELINE_JOBS = 6 * BATCH
_MOST = 200_000  # jobs in the wheel, some 60 MB; what does not fit is the sweep's

Item = tuple[Slot, str | None]


class OnTime:
    """Holds the jobs of the next seconds; `look` is given a queue to be swept at once."""

    def __init__(
        self, firer: Firer, server: ServerClock, outage: Outage, *, look: Callable[[Slot], None]
    ) -> None:
        self._firer = firer
        self._server = server
        self._outage = outage
        self._look = look
        self._wheel: TimingWheel[Item] = TimingWheel(server.now_ms())
        self._due: dict[Slot, dict[str, int]] = {}
        self._under_way = 0
        self._wake = asyncio.Event()
        self._armed_ms = float("inf")

    def __len__(self) -> int:
        return len(self._wheel)

    def add(self, at_ms: int, slot: Slot, job_id: str | None) -> None:
        """Fire a job at its time (server wall ms), or have its queue looked at then (None)."""
        if len(self._wheel) >= _MOST:
            return
        self._wheel.add(at_ms, (slot, job_id))
        if at_ms < self._armed_ms:
            self._wake.set()

    async def run(self) -> None:
        """Fire until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                self._collect()
                while self._due and self._under_way < _PIPELINES:
                    self._under_way += 1
                    group.create_task(self._send(self._next_pipeline()))
                await self._sleep()

    async def _sleep(self) -> None:
        next_ms = self._wheel.next_ms()
        self._armed_ms = float("inf") if next_ms is None else next_ms
        timer = None
        if next_ms is not None:
            delay_s = self._server.wait_s(next_ms)
            timer = asyncio.get_running_loop().call_later(delay_s, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _collect(self) -> None:
        for at_ms, (slot, job_id) in self._wheel.advance(self._server.now_ms()):
            if not slot.owner.is_open:
                continue
            if job_id is None:
                self._look(slot)
            else:
                self._due.setdefault(slot, {})[job_id] = at_ms
                slot.asked.add(job_id)

    def _next_pipeline(self) -> list[Batch]:
        batches: list[Batch] = []
        room = _PIPELINE_JOBS
        while self._due and room > 0:
            slot, waiting = next(iter(self._due.items()))
            del self._due[slot]
            jobs = [Due(job_id, at_ms) for job_id, at_ms in waiting.items()]
            if len(jobs) > BATCH:
                self._due[slot] = dict(jobs[BATCH:])  # to the end of the line: each gets a turn
                jobs = jobs[:BATCH]
            batches.append(Batch(slot, jobs))
            room -= len(jobs)
        return batches

    async def _send(self, batches: list[Batch]) -> None:
        try:
            await self._firer.fire(batches, on_time=True)
        except RedjobError as exc:
            self._outage.failed(exc)
        finally:
            for slot, jobs in batches:
                slot.asked.difference_update(job.id for job in jobs)
            self._under_way -= 1
            self._wake.set()
