"""A primary of a cluster dies while jobs come, fire and run: none is lost, and the others hardly notice."""

from __future__ import annotations

import asyncio
import time
from random import Random
from typing import TYPE_CHECKING

import pytest

from redjob.config import SchedulerConfig, SweeperConfig
from redjob.context import current_job
from redjob.scheduler import SchedulerNode
from redjob.store.aio import AsyncStore
from redjob.store.settings import settings_from_url
from redjob.sweeper import SweeperNode
from tests.flow.working import QUEUE, open_shop, until

if TYPE_CHECKING:
    from tests.support.servers import OwnClusterFactory

pytestmark = pytest.mark.anyio


@pytest.mark.solo
async def test_jobs_go_on_while_a_primary_is_replaced(
    own_cluster: OwnClusterFactory, ns: str
) -> None:
    nodes = own_cluster()
    late_ms: dict[str, int] = {}
    async with open_shop(nodes.url, ns, partitions=16) as shop:

        @shop.app.task(queue=QUEUE, name="due")
        async def due(at_ms: int) -> None:
            late_ms.setdefault(current_job().id, shop.store.now_ms() - at_ms)

        stores = [AsyncStore(settings_from_url(nodes.url), ns) for _ in range(2)]
        scheduler = SchedulerNode(stores[0], SchedulerConfig(), rng=Random(1))
        sweeper = SweeperNode(stores[1], SweeperConfig(), rng=Random(1))
        running = [asyncio.create_task(scheduler.run())]
        try:
            await asyncio.wait_for(scheduler.wait_ready(), 20)
            running.append(asyncio.create_task(sweeper.run()))
            shop.work(look_every_s=1.0)
            owners = {part: nodes.primary_of(part.slot) for part in shop.store.keys.parts}
            victim = owners[shop.part]
            jobs: dict[str, int] = {}

            async def enqueue(count: int, *, in_ms: int, every_ms: int) -> None:
                for number in range(count):
                    at_ms = shop.store.now_ms() + in_ms + number * every_ms
                    delay_s = (in_ms + number * every_ms) / 1000
                    jobs[(await due.aenqueue_in(delay_s, at_ms)).id] = at_ms

            await enqueue(200, in_ms=300, every_ms=25)
            for node in nodes.primaries():
                assert node.command("WAIT", 1, 5000) == 1
            killed = time.monotonic()
            victim.kill()
            await enqueue(100, in_ms=1000, every_ms=50)
            await until(lambda: len(late_ms) >= len(jobs), within_s=40)
            assert time.monotonic() - killed < 30
        finally:
            for task in running:
                task.cancel()
            ends = await asyncio.gather(*running, return_exceptions=True)
            for store in stores:
                await store.aclose()
        assert [end for end in ends if not isinstance(end, asyncio.CancelledError)] == []
        assert late_ms.keys() == jobs.keys()
        keys = shop.store.keys
        elsewhere = [
            late for job_id, late in late_ms.items() if owners[keys.of_job(job_id)] is not victim
        ]
        assert len(elsewhere) > 100
        assert min(late_ms.values()) >= -1, "none is early"
        slow = [late for late in elsewhere if late > 1000]
        assert not slow, f"{len(slow)} of {len(elsewhere)} waited for a primary that is not theirs"
