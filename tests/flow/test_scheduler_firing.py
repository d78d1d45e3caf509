"""One scheduler: every job of every kind is fired once, in time, and damage stops only what it touches."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from redjob.clock import SystemClock
from tests.flow.scheduling import QUEUE, Scene, scheduling, until

if TYPE_CHECKING:
    from tests.support.servers import TestServer

pytestmark = [pytest.mark.anyio, pytest.mark.server("valkey", "redis", "cluster")]
SLOT = 5  # in the first partition


async def test_every_job_fires_once_and_none_early(server: TestServer, ns: str) -> None:
    async with scheduling(server.url, ns) as (desk, running, _):
        want = await desk.enqueue(500, in_ms=300, every_ms=2)
        late = await desk.all_fired(want)
        assert min(late.values()) >= 0
        counters = running.node.counters
        await until(lambda: counters.fired == 500)
        assert (counters.early, counters.lost) == (0, 0)
        assert counters.lateness.count + counters.overdue == 500


async def test_a_job_for_the_next_moment_is_heard_of_by_the_journal(
    server: TestServer, ns: str
) -> None:
    async with scheduling(server.url, ns, sweep_every_s=60) as (desk, running, _):
        want: dict[str, int] = {}
        for _ in range(10):
            want |= await desk.enqueue(in_ms=40)
        await desk.all_fired(want)
        assert running.node.counters.overdue == 0


async def test_a_job_beyond_the_window_is_found_by_a_peek(server: TestServer, ns: str) -> None:
    config: Any = {"lookahead_ms": 1500, "sweep_every_s": 60}
    async with scheduling(server.url, ns, **config) as (desk, running, _):
        want = await desk.enqueue(20, in_ms=2500)
        await desk.all_fired(want)
        assert running.node.counters.overdue == 0


async def test_a_cancelled_job_does_not_fire(server: TestServer, ns: str) -> None:
    async with scheduling(server.url, ns) as (desk, running, _):
        want = await desk.enqueue(10, in_ms=400)
        gone = list(want)[::2]
        for job_id in gone:
            await desk.cancel(job_id)
        await desk.all_fired({job_id: at for job_id, at in want.items() if job_id not in gone})
        await until(lambda: running.node.counters.absent == len(gone))


async def test_a_rescheduled_job_fires_at_its_new_time_only(server: TestServer, ns: str) -> None:
    async with scheduling(server.url, ns) as (desk, running, _):
        sooner = await desk.enqueue(in_ms=60_000)
        later = await desk.enqueue(in_ms=300)
        ((first, first_ms),) = sooner.items()
        ((second, second_ms),) = later.items()
        await desk.reschedule(first, first_ms, first_ms - 59_500)
        await desk.reschedule(second, second_ms, second_ms + 500)
        late = await desk.all_fired({first: first_ms - 59_500, second: second_ms + 500})
        assert min(late.values()) >= 0
        assert running.node.counters.early <= 1  # asked once at the old time


async def test_a_retry_fires_when_its_delay_is_over(server: TestServer, ns: str) -> None:
    config: Any = {"partitions": 1, "sweep_every_s": 60}
    async with scheduling(server.url, ns, **config) as (desk, running, _):
        await desk.enqueue(slot=SLOT)
        (start,) = await desk.take(desk.part, 1)
        await desk.end(start, "R", delay_ms=100)
        await until(desk.fired)
        assert running.node.counters.overdue == 0


async def test_what_became_due_while_nobody_was_there_is_drained_at_the_start(
    server: TestServer, ns: str
) -> None:
    async with scheduling(server.url, ns) as (desk, running, scene):
        await running.stop()
        want = await desk.enqueue(3000, in_ms=800)
        want |= await desk.enqueue(100, in_ms=100, queue="other")
        await until(lambda: desk.store.now_ms() > max(want.values()))
        second = await scene.start(depth_limit="none")
        await until(lambda: len(desk.entries()) == 3000 and len(desk.entries("other")) == 100)
        assert desk.fired().keys() | desk.fired("other").keys() == want.keys()
        await until(lambda: second.node.counters.overdue == 3100)


async def test_more_jobs_of_one_millisecond_than_a_page_holds_all_fire(
    server: TestServer, ns: str
) -> None:
    async with scheduling(server.url, ns, depth_limit="none") as (desk, _, _):
        want = await desk.enqueue(2500, in_ms=1500, slot=SLOT)
        late = await desk.all_fired(want)
        assert min(late.values()) >= 0


async def test_jobs_over_the_depth_limit_wait_in_ready_and_come_out_by_priority(
    server: TestServer, ns: str
) -> None:
    async with scheduling(server.url, ns, partitions=1, depth_limit="3") as (desk, running, _):
        ready = desk.part.queue(QUEUE).ready
        await desk.enqueue(3, in_ms=50, slot=SLOT)
        await until(lambda: len(desk.entries()) == 3)
        low = await desk.enqueue(4, in_ms=50, slot=SLOT, priority=8)
        await until(lambda: desk.redis.zcard(ready) == 4)
        high = await desk.enqueue(2, in_ms=50, slot=SLOT, priority=2)
        await until(lambda: desk.redis.zcard(ready) == 6)
        await until(lambda: running.node.counters.parked == 6)
        await desk.take(desk.part, 3)
        await until(lambda: len(desk.entries()) == 3)
        assert {job_id for job_id, _ in desk.entries()[:2]} == high.keys()
        assert desk.entries()[2][0] in low
        for _ in range(2):
            await desk.take(desk.part, 3)
            await until(lambda: desk.redis.zcard(ready) == 0 or len(desk.entries()) == 3)
        await until(lambda: running.node.counters.released == 6)


async def test_jobs_that_a_client_found_no_room_for_are_let_out(
    server: TestServer, ns: str
) -> None:
    async with scheduling(server.url, ns, partitions=1, depth_limit="2") as (desk, _, _):
        await desk.enqueue(5, slot=SLOT)
        ready = desk.part.queue(QUEUE).ready
        assert desk.redis.zcard(ready) == 3
        await desk.take(desk.part, 2)
        await until(lambda: len(desk.entries()) == 2)
        assert desk.redis.zcard(ready) == 1


async def test_a_job_without_a_record_is_told_once_and_holds_nobody_up(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with scheduling(server.url, ns, partitions=1) as (desk, running, _):
        gone = await desk.enqueue(3, in_ms=200, slot=SLOT)
        for job_id in gone:
            desk.redis.delete(desk.part.job(job_id))
        await until(lambda: running.node.counters.lost == 3)
        await desk.all_fired(await desk.enqueue(5, in_ms=100, slot=SLOT))
        due: Any = desk.redis.zrange(desk.part.queue(QUEUE).due, 0, -1)
        assert {job_id.decode() for job_id in due} == gone.keys()
        for job_id in gone:
            assert caplog.text.count(f"no_record job={job_id} partition=0 queue=q") == 1


@pytest.mark.parametrize("which", ["stream", "due", "ready"])
async def test_a_damaged_key_stops_its_queue_only(server: TestServer, ns: str, which: str) -> None:
    async with scheduling(server.url, ns, partitions=1) as (desk, _, _):
        damaged = getattr(desk.part.queue("bad"), which)
        want = await desk.enqueue(3, in_ms=300, queue="bad", slot=SLOT)
        if which == "due":
            desk.redis.rename(damaged, damaged + ":whole")
        desk.redis.set(damaged, "not what it should be")
        for _ in range(3):
            await desk.all_fired_and_taken(await desk.enqueue(5, in_ms=150, slot=SLOT))
        desk.redis.delete(damaged)
        if which == "due":
            desk.redis.rename(damaged + ":whole", damaged)
        await desk.all_fired(want, queue="bad")


async def test_a_queue_whose_earliest_job_is_gone_gets_its_score_right(
    server: TestServer, ns: str
) -> None:
    async with scheduling(server.url, ns, partitions=1) as (desk, _, _):
        (first,) = await desk.enqueue(in_ms=150, slot=SLOT)
        ((_, second_ms),) = (await desk.enqueue(in_ms=60_000, slot=SLOT)).items()
        await desk.cancel(first)
        await until(lambda: desk.redis.zscore(desk.part.queues, QUEUE) == second_ms)


async def test_a_wrong_clock_of_the_scheduler_changes_nothing(server: TestServer, ns: str) -> None:
    class Wrong(SystemClock):
        def wall_ms(self) -> int:
            return super().wall_ms() + 600_000

    scene = Scene(server.url, ns, 2)
    try:
        running = await scene.start(clock=Wrong())
        want = await scene.desk.enqueue(20, in_ms=300, every_ms=10)
        late = await scene.desk.all_fired(want)
        assert min(late.values()) >= 0
        assert running.node.counters.early == 0
    finally:
        await scene.close()


async def test_script_cache_and_connections_may_go_at_any_time(server: TestServer, ns: str) -> None:
    async with scheduling(server.url, ns) as (desk, running, _):
        want = await desk.enqueue(150, in_ms=200, every_ms=10)
        for _ in range(5):
            desk.redis.script_flush()
            await asyncio.sleep(0.2)
        late = await desk.all_fired(want)
        assert min(late.values()) >= 0
        await until(lambda: running.node.counters.fired == 150)


@pytest.mark.solo
async def test_jobs_are_fired_on_time_at_moderate_load(server: TestServer, ns: str) -> None:
    async with scheduling(server.url, ns, partitions=16) as (desk, running, _):
        want = await desk.enqueue(1000, in_ms=1000, every_ms=4)
        await until(lambda: running.node.counters.fired == 1000)
        late = sorted((await desk.all_fired(want)).values())
        assert late[0] >= 0
        assert late[500] <= 3, late[500]
        assert late[990] <= 15, late[990]
        assert running.node.counters.early == 0


@pytest.mark.solo
async def test_a_burst_at_one_instant_is_in_the_streams_in_a_third_of_a_second(
    server: TestServer, ns: str
) -> None:
    async with scheduling(server.url, ns, partitions=16) as (desk, running, _):
        want = await desk.enqueue(5000, in_ms=2500)
        await until(lambda: running.node.counters.fired == 5000)
        late = await desk.all_fired(want)
        assert min(late.values()) >= 0
        assert max(late.values()) <= 300
