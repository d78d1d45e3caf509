"""Which jobs a worker takes and when: slots, bells, looks, ready, pauses, what nothing names."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from redjob.calls import jobs
from redjob.codec import decode_attempts, encode_past
from redjob.context import current_job
from redjob.ids import new_token
from redjob.keys import workers_key
from redjob.model import JobState, Past
from tests.flow.working import (
    QUEUE,
    Shop,
    counted,
    extra_starts,
    looked,
    messages,
    open_shop,
    until,
)

if TYPE_CHECKING:
    from tests.support.servers import TestServer

pytestmark = pytest.mark.server("valkey", "redis", "cluster")


async def test_a_long_job_holds_up_no_other(server: TestServer, ns: str) -> None:
    end = asyncio.Event()
    async with open_shop(server.url, ns) as shop:

        @shop.app.task(queue=QUEUE)
        async def long() -> None:
            await end.wait()

        @shop.app.task(queue=QUEUE)
        async def quick(number: int) -> int:
            return number

        node = shop.work(concurrency=2)
        await long.aenqueue()
        await until(lambda: node.running == 1)
        results = await quick.aenqueue_many([(n,) for n in range(100)])
        assert all(result.error is None for result in results)
        await until(lambda: node.counters.completed == 100)
        assert node.running == 1
        end.set()


async def test_a_worker_runs_at_most_its_slots_and_holds_no_job_that_it_cannot_start(
    server: TestServer, ns: str
) -> None:
    now, most = 0, 0
    async with open_shop(server.url, ns, partitions=4) as shop:

        @shop.app.task(queue=QUEUE)
        async def counted() -> None:
            nonlocal now, most
            now += 1
            most = max(most, now)
            running = 0
            for part in shop.store.keys.parts:
                running += await shop.redis.zcard(part.running)
            # ended ones may wait for their report; none is held back
            assert running - now <= node.counters.taken - node.running
            await asyncio.sleep(0.002)
            now -= 1

        await counted.aenqueue_many([()] * 200)
        node = shop.work(concurrency=5)
        await until(lambda: node.counters.completed == 200)
        assert most == 5
        assert node.counters.taken == 200


async def test_threads_never_exceed_the_slots(server: TestServer, ns: str) -> None:
    lock = threading.Lock()
    now, most = 0, 0
    async with open_shop(server.url, ns) as shop:

        @shop.app.task(queue=QUEUE)
        def counted() -> None:
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
            threading.Event().wait(0.002)
            with lock:
                now -= 1

        await counted.aenqueue_many([()] * 60)
        node = shop.work(concurrency=4)
        await until(lambda: node.counters.completed == 60)
        assert 1 <= most <= 4


async def test_an_idle_worker_is_woken_by_the_bell(server: TestServer, ns: str) -> None:
    async with open_shop(server.url, ns, partitions=8) as shop:

        @shop.app.task(queue=QUEUE)
        async def quick() -> int:
            return 1

        node = shop.work(look_every_s=60.0)
        for count in range(1, 30):  # all partitions by and by, long before the next look
            assert await (await quick.aenqueue()).result(5) == 1
            await counted(node, "completed", count)


async def test_a_job_whose_token_is_lost_is_found_by_a_look(server: TestServer, ns: str) -> None:
    async with open_shop(server.url, ns) as shop:

        @shop.app.task(queue=QUEUE)
        async def quick() -> int:
            return 1

        node = shop.work(look_every_s=0.1)
        await until(lambda: node.last_tick > 0)
        for count in range(1, 6):
            await shop.put(quick.name, unheard=True)
            await counted(node, "completed", count)


async def test_two_workers_share_the_jobs_and_run_each_once(server: TestServer, ns: str) -> None:
    starts: list[int] = []
    async with open_shop(server.url, ns, partitions=4) as shop:

        @shop.app.task(queue=QUEUE)
        async def counted(number: int) -> None:
            starts.append(number)
            await asyncio.sleep(0.001)

        nodes = [shop.work(concurrency=3) for _ in range(2)]
        await counted.aenqueue_many([(n,) for n in range(300)])
        await until(lambda: sum(node.counters.completed for node in nodes) == 300)
        assert sorted(starts) == list(range(300))
        assert all(node.counters.completed for node in nodes)


async def test_a_starting_worker_leaves_running_jobs_alone(server: TestServer, ns: str) -> None:
    starts: list[int] = []
    end = asyncio.Event()
    async with open_shop(server.url, ns) as shop:

        @shop.app.task(queue=QUEUE)
        async def long(number: int) -> None:
            starts.append(number)
            await end.wait()

        first = shop.work(concurrency=20)
        await long.aenqueue_many([(n,) for n in range(20)])
        await until(lambda: first.running == 20)
        others = [shop.work() for _ in range(5)]
        await until(lambda: all(node.last_tick for node in others))
        end.set()
        await until(lambda: first.counters.completed == 20)
        assert sorted(starts) == list(range(20))


async def test_workers_empty_a_full_ready_without_any_owner(server: TestServer, ns: str) -> None:
    async with open_shop(server.url, ns, partitions=1, depth_limit="2") as shop:

        @shop.app.task(queue=QUEUE)
        async def quick() -> None:
            pass

        await quick.aenqueue_many([()] * 300)
        assert await shop.redis.zcard(shop.part.queue(QUEUE).ready) == 298
        node = shop.work()
        await until(lambda: node.counters.completed == 300)


async def test_a_paused_queue_is_left_alone_until_it_goes_on(server: TestServer, ns: str) -> None:
    async with open_shop(server.url, ns, partitions=1) as shop:

        @shop.app.task(queue=QUEUE)
        async def quick() -> int:
            return 1

        await shop.redis.hset(shop.part.queue(QUEUE).flow, "paused", "1")
        job = await quick.aenqueue()
        node = shop.work(look_every_s=0.05)
        await looked(node, 4)
        assert await job.state() is JobState.DISPATCHED
        await shop.redis.hdel(shop.part.queue(QUEUE).flow, "paused")
        assert await job.result() == 1


async def test_a_cancelled_job_is_not_started_and_its_entry_is_settled(
    server: TestServer, ns: str
) -> None:
    starts: list[int] = []
    async with open_shop(server.url, ns, partitions=1) as shop:

        @shop.app.task(queue=QUEUE)
        async def counted(number: int) -> None:
            starts.append(number)

        handles = [await counted.aenqueue(n) for n in range(10)]
        for handle in handles[::2]:
            await handle.cancel()
        node = shop.work()
        await until(lambda: node.counters.completed == 5)
        assert sorted(starts) == [1, 3, 5, 7, 9]
        assert await shop.redis.xlen(shop.part.queue(QUEUE).stream) == 0
        assert [await handle.state() for handle in handles[::2]] == [JobState.CANCELLED] * 5


async def test_a_job_in_no_place_gets_a_new_entry_and_a_log_line(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_shop(server.url, ns, partitions=1) as shop:

        @shop.app.task(queue=QUEUE)
        async def quick() -> int:
            return 1

        job = await quick.aenqueue()
        await shop.redis.hdel(shop.part.dispatched, job.id)
        shop.work()
        assert await job.result() == 1
        assert extra_starts(caplog) == [(job.id, 0, "entry_lost")]
        assert await shop.redis.hget(shop.part.meta, "seen_ms") is None, "there is no sweeper"


async def test_entries_that_are_not_ours_are_settled_and_stop_nothing(
    server: TestServer, ns: str
) -> None:
    async with open_shop(server.url, ns, partitions=1) as shop:

        @shop.app.task(queue=QUEUE)
        async def quick() -> int:
            return 1

        await quick.aenqueue()  # so that the stream has its group
        stream = shop.part.queue(QUEUE).stream
        foreign: tuple[dict[Any, Any], ...] = (
            {b"id": b"\xff\xfe", b"doc": b"x"},
            {b"id": b"..\r\n", b"doc": b""},
            {b"hello": b"world"},
            {b"id": b"9" * 5000, b"doc": b"\x00"},
        )
        for fields in foreign:
            await shop.redis.xadd(stream, fields)
        node = shop.work()
        job = await quick.aenqueue()
        assert await job.result() == 1
        await until(lambda: node.counters.completed == 2)

        async def settled() -> bool:
            return bool(await shop.redis.xlen(stream) == 0)

        await until(settled)


async def test_queues_are_served_in_their_order(server: TestServer, ns: str) -> None:
    order: list[str] = []
    async with open_shop(server.url, ns, partitions=1) as shop:

        @shop.app.task(queue="second", name="second")
        async def second() -> None:
            order.append("second")

        @shop.app.task(queue="first", name="first")
        async def first() -> None:
            order.append("first")

        await second.aenqueue_many([()] * 5)
        await first.aenqueue_many([()] * 5)
        node = shop.work(queues=("first", "second"), concurrency=1)
        await until(lambda: node.counters.completed == 10)
        assert order == ["first"] * 5 + ["second"] * 5


async def test_a_queue_that_nobody_knows_is_warned_of_once(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_shop(server.url, ns) as shop:

        @shop.app.task(queue="declared")
        async def quick() -> None:
            pass

        await shop.redis.zadd(shop.part.queues, {"seen": 1})
        node = shop.work(queues=("declared", "seen", "emial"), look_every_s=0.05)
        await until(lambda: messages(caplog, "unknown_queue"))
        await looked(node, 4)
        [line] = messages(caplog, "unknown_queue")
        assert line.startswith("unknown_queue queue=emial ")


async def test_a_worker_shows_itself_and_leaves_the_list_at_its_end(
    server: TestServer, ns: str
) -> None:
    async with open_shop(server.url, ns) as shop:
        node = shop.work()
        key = workers_key(ns)
        await until(lambda: shop.redis.zscore(key, node.name))
        node.stop()
        await shop.stopped(node)
        assert await shop.redis.zscore(key, node.name) is None


async def test_a_worker_waits_for_its_namespace(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_shop(server.url, ns) as other:
        other.app.namespace = f"{ns}later"
        node = other.work()
        await until(lambda: messages(caplog, "worker_waits"))
        node.stop()
        await other.stopped(node)


async def test_a_damaged_key_of_one_partition_stops_no_other(server: TestServer, ns: str) -> None:
    async with open_shop(server.url, ns, partitions=2) as shop:

        @shop.app.task(queue=QUEUE)
        async def quick() -> int:
            return 1

        await shop.redis.set(shop.part.queue(QUEUE).stream, "not a stream")
        await shop.redis.set(shop.part.running, "not a zset")
        shop.work(look_every_s=0.05)
        sent = 0
        while sent < 5:
            job = (await quick.aenqueue_many([()]))[0].job
            if job is not None and shop.store.keys.of_job(job.id).index == 1:
                assert await job.result() == 1
                sent += 1


async def test_every_slot_is_free_again_after_failing_takes(server: TestServer, ns: str) -> None:
    async with open_shop(server.url, ns, partitions=1) as shop:

        @shop.app.task(queue=QUEUE)
        async def quick() -> int:
            return 1

        state = await shop.redis.hget(shop.part.meta, "state")
        await shop.redis.hset(shop.part.meta, "state", "REBUILDING")
        node = shop.work(concurrency=1)
        tick = node.last_tick
        await asyncio.sleep(0.2)
        assert node.last_tick - tick < 0.2  # a worker that gets nothing done does not look well
        await shop.redis.hset(shop.part.meta, "state", state)
        assert await (await quick.aenqueue()).result() == 1


async def test_jobs_too_large_for_one_reply_are_taken_without_waiting_for_a_look(
    server: TestServer, ns: str
) -> None:
    async with open_shop(server.url, ns, partitions=1) as shop:

        @shop.app.task(queue=QUEUE)
        async def large(text: str) -> None:
            assert len(text) == 200_000

        await large.aenqueue_many([("x" * 200_000,)] * 20)
        node = shop.work(concurrency=50, look_every_s=60)
        await until(lambda: node.counters.completed == 20)


async def test_a_repeated_enqueue_of_the_same_job_is_run_once(server: TestServer, ns: str) -> None:
    async with open_shop(server.url, ns, partitions=1) as shop:
        starts: list[int] = []

        @shop.app.task(queue=QUEUE, name="t")
        async def counted() -> None:
            starts.append(1)

        job_id = await shop.put("t")
        doc = (await shop.where(job_id)).doc
        new = [jobs.NewJob(job_id, 0, doc)]
        node = shop.work()
        await shop.store.call(jobs.enqueue(shop.part, QUEUE, "default", 5, new, new_token()))
        await until(lambda: node.counters.completed == 1)
        await shop.store.call(jobs.enqueue(shop.part, QUEUE, "default", 5, new, new_token()))
        assert starts == [1]


async def suspect(shop: Shop, task: str) -> str:
    """Put a job whose next crash is its last."""
    job_id = await shop.put(task, unheard=True)
    part = shop.store.keys.of_job(job_id)
    field = b"2 tag " + encode_past(Past(crashes=2, last="crashed"))
    await shop.redis.hset(part.attempts, job_id, field)
    await shop.redis.rpush(part.queue(QUEUE).bell, "1")
    return job_id


async def test_a_job_whose_next_crash_is_its_last_begins_while_the_worker_holds_no_other(
    server: TestServer, ns: str
) -> None:
    beside: list[int] = []
    suspects: set[str] = set()
    running = 0
    async with open_shop(server.url, ns, partitions=2) as shop:

        @shop.app.task(queue=QUEUE, name="any")
        async def any_job() -> None:
            nonlocal running
            if current_job().id in suspects:
                held = [await shop.redis.hlen(part.runs) for part in shop.store.keys.parts]
                beside.append(sum(held) - 1 + running)
            running += 1
            await asyncio.sleep(0.01)
            running -= 1

        for number in range(60):
            if number % 20 == 7:
                suspects.add(await suspect(shop, "any"))
            else:
                await shop.put("any")
        node = shop.work(concurrency=16)
        await counted(node, "completed", 60)
    assert beside == [0, 0, 0]


async def test_a_worker_that_stops_gives_back_a_job_that_waits_to_begin_alone(
    server: TestServer, ns: str
) -> None:
    end = asyncio.Event()
    async with open_shop(server.url, ns, partitions=1) as shop:

        @shop.app.task(queue=QUEUE, name="long")
        async def long() -> None:
            await end.wait()

        node = shop.work()
        await shop.put("long")
        await until(lambda: node.running == 1)
        job_id = await suspect(shop, "long")
        await until(lambda: node.counters.handed_back >= 1)
        node.stop()
        end.set()
        await shop.stopped(node)
        located = await shop.where(job_id)
        assert located.entry
        assert decode_attempts(located.attempts).past.crashes == 2
