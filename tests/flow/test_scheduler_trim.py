"""What a scheduler removes: journal entries that were read, tombstones that are old enough, nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.flow.scheduling import scheduling, until

if TYPE_CHECKING:
    from tests.flow.scheduling import Desk
    from tests.support.servers import TestServer

pytestmark = [pytest.mark.anyio, pytest.mark.server("valkey", "redis", "cluster")]
SLOT = 5


async def finished(desk: Desk, count: int) -> None:
    """Run some jobs to their end."""
    await desk.enqueue(count, slot=SLOT)
    for start in await desk.take(desk.part, count):
        await desk.end(start, "C")


async def test_of_an_idle_journal_the_newest_entry_stays(server: TestServer, ns: str) -> None:
    async with scheduling(server.url, ns, partitions=1, trim_every_s=0.05) as (desk, _, _):
        await finished(desk, 30)
        assert desk.redis.xlen(desk.part.journal) > 30  # its last seconds stay, to tell a rollback
        await until(lambda: desk.redis.xlen(desk.part.journal) == 1)
        assert desk.journal_ends_as_meta_says(desk.part)


async def test_tombstones_go_when_they_are_old_enough(server: TestServer, ns: str) -> None:
    config: Any = {"trim_every_s": 0.05, "tombstone_keep_ms": 1500}
    async with scheduling(server.url, ns, partitions=1, **config) as (desk, _, _):
        await finished(desk, 20)
        (job_id,) = await desk.enqueue(in_ms=60_000, slot=SLOT)
        await desk.cancel(job_id)
        ended_ms = desk.store.now_ms()
        assert desk.redis.hlen(desk.part.finished) == 21
        await until(lambda: desk.redis.hlen(desk.part.finished) == 0)
        assert desk.store.now_ms() - ended_ms >= 1500


async def test_tombstones_that_an_owner_before_left_are_found_by_a_scan(
    server: TestServer, ns: str
) -> None:
    config: Any = {"trim_every_s": 0.05, "tombstone_keep_ms": 300}
    async with scheduling(server.url, ns, partitions=1) as (desk, first, scene):
        await finished(desk, 20)
        await first.stop()
        ended_ms = desk.store.now_ms()
        assert desk.redis.hlen(desk.part.finished) == 20
        desk.redis.hset(desk.part.finished, "damaged", "?")
        await until(lambda: desk.store.now_ms() > ended_ms + 400)
        await scene.start(**config)
        await until(lambda: desk.redis.hlen(desk.part.finished) <= 1)
        await finished(desk, 3)
        await until(lambda: desk.redis.hlen(desk.part.finished) <= 1)


async def test_a_thousand_tombstones_go_in_calls_of_five_hundred(
    server: TestServer, ns: str
) -> None:
    config: Any = {"trim_every_s": 0.1, "tombstone_keep_ms": 100}
    async with scheduling(server.url, ns, partitions=1, **config) as (desk, _, _):
        await finished(desk, 400)
        await finished(desk, 400)
        await finished(desk, 400)
        await until(lambda: desk.redis.hlen(desk.part.finished) == 0)
