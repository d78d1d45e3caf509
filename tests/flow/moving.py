"""A namespace on a cluster with its services and a load, whose partitions a test moves about."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING

from redjob.app import Redjob
from redjob.config import SchedulerConfig, SweeperConfig, WorkerConfig
from redjob.context import current_job
from redjob.errors import RedjobError
from redjob.ids import slot_of
from redjob.keys import Keyspace
from redjob.scheduler import SchedulerNode
from redjob.store.aio import AsyncStore
from redjob.store.settings import settings_from_url
from redjob.sweeper import SweeperNode
from redjob.worker import WorkerNode
from tests.flow.working import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from redjob.keys import PartitionKeys
    from tests.support.cluster import ClusterNodes
    from tests.support.cluster_node import ClusterNode

PARTITIONS = 4


class Load:
    """Jobs that come all the time, now and later, and how often each has run."""

    def __init__(self, url: str, ns: str) -> None:
        self.app = Redjob(url, namespace=ns)
        self.accepted: set[str] = set()
        self.runs: Counter[str] = Counter()
        self.refused: list[str] = []
        self._enough = asyncio.Event()

        @self.app.task(queue="q", name="note")
        async def note(_size: str) -> None:
            self.runs[current_job().id] += 1

        self._note = note

    async def run(self) -> None:
        """Enqueue until told that it is enough."""
        number = 0
        while not self._enough.is_set():
            number += 1
            later_s = (0.0, 0.3, 2.0)[number % 3]
            try:
                bound = self._note.aenqueue_in(later_s, "x" * 200) if later_s else None
                job = await (bound or self._note.aenqueue("x" * 200))
            except RedjobError as exc:
                self.refused.append(str(exc))
            else:
                self.accepted.add(job.id)
            await asyncio.sleep(0.002)

    async def ended(self) -> bool:
        """Whether every job has run."""
        return self.accepted <= self.runs.keys()

    def stop(self) -> None:
        """Enqueue no more."""
        self._enough.set()


@asynccontextmanager
async def at_work(nodes: ClusterNodes, ns: str) -> AsyncGenerator[Load]:
    """A scheduler, a sweeper, a worker and their load; at the end all has run once, or it fails."""
    settings = settings_from_url(nodes.url)
    stores = [AsyncStore(settings, ns, partitions=PARTITIONS) for _ in range(2)]
    scheduler = SchedulerNode(stores[0], SchedulerConfig(), rng=Random(1))
    tasks = [asyncio.create_task(scheduler.run())]
    load = Load(nodes.url, ns)
    try:
        await asyncio.wait_for(scheduler.wait_ready(), 20)
        sweeper = SweeperNode(stores[1], SweeperConfig(every_s=0.2, scan_every_s=0.2))
        worker = WorkerNode(load.app, WorkerConfig(queues=("q",), concurrency=16))
        tasks += [asyncio.create_task(sweeper.run()), asyncio.create_task(worker.run())]
        enqueuing = [asyncio.create_task(load.run()) for _ in range(3)]
        await until(lambda: _has_run(load, 200))
        yield load
        seen = len(load.runs)
        await until(lambda: _has_run(load, seen + 200))  # it goes on afterwards
        load.stop()
        await asyncio.gather(*enqueuing)
        await until(load.ended)
        assert load.refused == []
        assert [job for job, count in load.runs.items() if count > 1] == []
        assert load.runs.keys() == load.accepted
    finally:
        load.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await load.app.aclose()
        for store in stores:
            await store.aclose()


async def _has_run(load: Load, count: int) -> bool:
    return len(load.runs) >= count


def a_move(nodes: ClusterNodes, ns: str, index: int) -> tuple[PartitionKeys, ClusterNode]:
    """A partition, and a primary that has it not."""
    part = Keyspace(ns, PARTITIONS).parts[index]
    source = nodes.primary_of(part.slot)
    return part, next(node for node in nodes.primaries() if node is not source)


def place(nodes: ClusterNodes, ns: str) -> tuple[str, ...]:
    """Where a command finds the namespace."""
    return ("--redis-url", nodes.url, "--namespace", ns)


async def more_of(load: Load, seen: set[str]) -> bool:
    """Whether a job of partition 1 has run that was not seen."""
    return any(slot_of(job) * PARTITIONS // 16384 == 1 for job in load.runs.keys() - seen)
