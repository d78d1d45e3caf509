"""What Redis does to a scheduler: restarts, empties itself, loses its newest writes, is full, or is not there."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.flow.scheduling import Scene, scheduling, until

if TYPE_CHECKING:
    from redjob.embedded import EmbeddedServer
    from tests.flow.scheduling import Desk
    from tests.support.servers import OwnServerFactory, TestServer

pytestmark = [pytest.mark.anyio, pytest.mark.server("valkey", "redis", "cluster")]
SLOT = 5


@pytest.fixture(autouse=True)
def _logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "redjob.scheduler")


async def restart(server: EmbeddedServer, *, crash: bool = False, away_s: float = 0.0) -> float:
    """Restart a server without stopping this process' loop; return when it was ready, monotonic s."""
    await asyncio.to_thread(server.kill if crash else server.stop)
    await asyncio.sleep(away_s)
    await asyncio.to_thread(server.start)
    return time.monotonic()


@pytest.mark.parametrize("away_s", [0.0, 1.5])
async def test_firing_goes_on_within_a_second_after_a_restart(
    own_server: OwnServerFactory, ns: str, away_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    server = own_server()
    async with scheduling(server.url, ns) as (desk, running, _):
        before = desk.epochs()
        want = await desk.enqueue(40, in_ms=200, every_ms=50)
        await restart(server, away_s=away_s)
        ready = time.monotonic()
        await until(lambda: _answers(desk) and len(desk.entries()) > 0, within_s=5)
        await until(lambda: _due_and_not_fired(desk, want) == 0, within_s=5)
        assert time.monotonic() - ready < 1.0
        late = await desk.all_fired(want)
        assert min(late.values()) >= 0
        assert all(new > old for new, old in zip(desk.epochs(), before, strict=True))
        assert running.node.counters.rollbacks == running.node.counters.emptied == 0
        assert len(re.findall(r"redis_away ", caplog.text)) <= 2
        assert "redis_back after_s=" in caplog.text


def _answers(desk: Desk) -> bool:
    try:
        return bool(desk.redis.ping())
    except Exception:  # noqa: BLE001 - whatever it says, it does not answer
        return False


def _due_and_not_fired(desk: Desk, want: dict[str, int]) -> int:
    seconds, micros = desk.redis.time()
    now_ms = seconds * 1000 + micros // 1000 - 50
    fired = desk.fired()
    return sum(at_ms <= now_ms and job_id not in fired for job_id, at_ms in want.items())


async def test_connections_may_be_killed_at_any_time(own_server: OwnServerFactory, ns: str) -> None:
    server = own_server()
    async with scheduling(server.url, ns) as (desk, _, _):
        want = await desk.enqueue(100, in_ms=100, every_ms=20)
        for _ in range(4):
            desk.redis.client_kill_filter(_type="normal", skipme=True)
            await asyncio.sleep(0.3)
        late = await desk.all_fired(want)
        assert min(late.values()) >= 0


async def test_an_emptied_redis_is_an_alarm_and_is_opened_anew(
    own_server: OwnServerFactory, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = own_server()
    async with scheduling(server.url, ns) as (desk, running, _):
        await desk.enqueue(20, in_ms=60_000)
        await until(lambda: running.node.scheduled_jobs == 20)
        old: Any = [desk.redis.hget(part.meta, "incarnation") for part in desk.store.keys.parts]
        emptied = time.monotonic()
        desk.redis.flushall()
        await until(
            lambda: all(desk.redis.hget(part.meta, "state") for part in desk.store.keys.parts)
        )
        want = await desk.enqueue(5, in_ms=50)
        await desk.all_fired(want)
        assert time.monotonic() - emptied < 2.0
        assert desk.redis.hget(f"{ns}:meta", "partitions") == b"4"
        for index, incarnation in enumerate(old):
            told = f"redis_emptied partition={index} incarnation={incarnation.decode()} known_jobs="
            assert caplog.text.count(told) == 1
        known = re.findall(r"redis_emptied .* known_jobs=(\d+)", caplog.text)
        assert sum(map(int, known)) == 20


async def test_a_redis_that_lost_its_newest_writes_is_told_with_the_jobs_concerned(
    own_server: OwnServerFactory, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = own_server(appendonly=False)
    async with scheduling(server.url, ns, partitions=1) as (desk, running, _):
        await desk.enqueue(3, slot=SLOT)
        (waits,) = await desk.enqueue(in_ms=60_000, slot=SLOT)
        desk.redis.save()  # a server that starts again begins here
        seq = int(desk.redis.hget(desk.part.meta, "seq") or 0)
        started = await desk.take(desk.part, 2)
        await desk.end(started[0], "C")
        (lost,) = await desk.enqueue(in_ms=60_000, slot=SLOT)
        await desk.cancel(waits)
        await until(lambda: running.node.counters.journal_entries == 6)
        assert "server_replaced" not in caplog.text
        await restart(server, crash=True)
        await until(lambda: running.node.counters.rollbacks == 1)
        assert "server_replaced partitions=0 newest_writes=unsure" in caplog.text
        assert f"journal_rolled_back partition=0 from_seq={seq + 4} to_seq={seq}" in caplog.text
        await until(lambda: f"job_lost_possible job={lost} cause=rollback" in caplog.text)
        await until(
            lambda: f"change_lost_possible job={waits} op=cancel cause=rollback" in caplog.text
        )
        for start in started:
            told = f"extra_start_possible job={start.id} attempt=1 cause=rollback"
            assert caplog.text.count(told) == 1
        want = await desk.enqueue(3, in_ms=100, slot=SLOT, queue="after")
        await desk.all_fired(want, queue="after")


async def test_a_full_redis_costs_no_lease_and_its_journal_is_trimmed(
    own_server: OwnServerFactory, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = own_server()
    config = {"trim_every_s": 0.1, "tombstone_keep_ms": 100}
    async with scheduling(server.url, ns, partitions=1, **config) as (desk, running, scene):
        await desk.enqueue(20, slot=SLOT)
        starts = await desk.take(desk.part, 20)
        desk.redis.config_set("maxmemory", "1")
        for start in starts:
            await desk.end(start, "C")
        await until(lambda: desk.redis.xlen(desk.part.journal) == 1)
        await until(lambda: desk.redis.hlen(desk.part.finished) == 0)
        await asyncio.sleep(1.5)  # longer than a lease, were it not renewed
        assert "lease_lost" not in caplog.text
        await running.stop()
        second = await scene.start()  # and it can be taken over
        desk.redis.config_set("maxmemory", "0")
        await desk.all_fired(await desk.enqueue(3, in_ms=50, slot=SLOT))
        assert second.node.counters.takeovers == 1


async def test_a_scheduler_that_starts_before_redis_waits_and_says_so(
    own_server: OwnServerFactory, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = own_server()
    await asyncio.to_thread(server.stop)
    scene = Scene(server.url, ns, 2)
    try:
        running = await scene.start(ready=False)
        await until(lambda: "redis_unavailable server=redis://127.0.0.1" in caplog.text)
        assert not running.task.done()
        await asyncio.to_thread(server.start)
        await scene.is_ready(running)
        await scene.desk.all_fired(await scene.desk.enqueue(5, in_ms=50))
    finally:
        await scene.close()


async def test_meta_that_was_deleted_by_hand_gets_a_new_incarnation_and_keeps_the_jobs(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with scheduling(server.url, ns, partitions=1) as (desk, _, _):
        want = await desk.enqueue(5, in_ms=400, slot=SLOT)
        desk.redis.delete(desk.part.meta)
        await desk.all_fired(want)
        assert caplog.text.count("redis_emptied partition=0") == 1


@pytest.mark.parametrize("how", ["forked", "deleted"])
async def test_a_journal_that_is_not_the_one_that_was_read_is_read_anew(
    server: TestServer, ns: str, how: str
) -> None:
    async with scheduling(server.url, ns, partitions=1, trim_every_s=0.1) as (desk, running, _):
        (before,) = desk.epochs()
        await desk.enqueue(2, slot=SLOT)
        await until(lambda: running.node.counters.journal_entries == 1)
        if how == "forked":  # the next entry will not follow on what was read
            desk.redis.hset(desk.part.meta, "tag", "another")
            await desk.enqueue(1, slot=SLOT)
        else:  # the trim will not find what was read
            desk.redis.delete(desk.part.journal)
        await until(lambda: desk.epochs()[0] > before)
        want = await desk.enqueue(5, in_ms=150, slot=SLOT, queue="after")
        await desk.all_fired(want, queue="after")
        await asyncio.sleep(0.3)
        assert desk.epochs()[0] == before + 1  # once is enough
