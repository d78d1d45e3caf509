"""On a cluster every primary takes its part of the work, whatever way jobs come and however many workers there are."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest

from redjob.config import SchedulerConfig
from redjob.context import current_job
from redjob.scheduler import SchedulerNode
from redjob.store.aio import AsyncStore
from redjob.store.settings import settings_from_url
from tests.flow.working import QUEUE, open_shop, until

if TYPE_CHECKING:
    from tests.flow.working import Shop
    from tests.support.cluster import ClusterNodes
    from tests.support.servers import TestServer

pytestmark = [pytest.mark.anyio, pytest.mark.server("cluster")]

PARTITIONS = 64
EACH = 300  # jobs of one way: about 5 a partition


def by_primary(nodes: ClusterNodes, shop: Shop, ids: set[str]) -> Counter[str]:
    """How many of these jobs each primary had."""
    owners = {part: nodes.primary_of(part.slot).address for part in shop.store.keys.parts}
    return Counter(owners[shop.store.keys.of_job(job_id)] for job_id in ids)


@pytest.mark.parametrize("workers", [1, 3, 10])
async def test_no_partition_starves(server: TestServer, ns: str, workers: int) -> None:
    ran: dict[str, list[str]] = {"single": [], "later": [], "many": []}
    async with open_shop(server.url, ns, partitions=PARTITIONS) as shop:

        @shop.app.task(queue=QUEUE, name="note")
        async def note(way: str) -> None:
            ran[way].append(current_job().id)

        for _ in range(workers):
            shop.work()  # its looks are 30 s apart: what no bell tells of would be late
        store = AsyncStore(settings_from_url(server.url), ns, partitions=PARTITIONS)
        scheduler = SchedulerNode(store, SchedulerConfig(), rng=Random(1))
        running = asyncio.create_task(scheduler.run())
        try:
            await asyncio.wait_for(scheduler.wait_ready(), 20)
            server.cluster.reset_calls()
            later = {(await note.aenqueue_in(1.0, "later")).id for _ in range(EACH)}
            single = {(await note.aenqueue("single")).id for _ in range(EACH)}
            results = [
                result
                for _ in range(EACH // 3)  # one call goes to one partition
                for result in await note.aenqueue_many([("many",)] * 3)
            ]
            many = {result.job.id for result in results if result.job}
            await until(lambda: all(len(ids) >= EACH for ids in ran.values()), within_s=15)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await store.aclose()
        for way, ids in (("later", later), ("single", single), ("many", many)):
            assert sorted(ran[way]) == sorted(ids), "each job once"
            shares = by_primary(server.cluster, shop, ids)
            assert len(shares) == 3
            assert min(shares.values()) > EACH / 6, shares
        calls = server.cluster.calls()
        assert len(calls) == 3
        assert all(counts["evalsha"] > EACH / 6 for counts in calls.values()), calls
