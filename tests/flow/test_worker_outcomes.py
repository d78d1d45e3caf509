"""How a job ends, by what its task does: through worker and Redis, seen by the client."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from redjob.codec import decode_attempts, encode_past
from redjob.context import current_job
from redjob.errors import JobCancelled, JobFailed, Snooze
from redjob.model import JobState, Options, Past
from redjob.retry import Retry
from tests.flow.working import QUEUE, counted, messages, open_shop, until

if TYPE_CHECKING:
    from tests.support.servers import TestServer

pytestmark = pytest.mark.server("valkey", "redis", "cluster")

AT_ONCE = Retry(max_attempts=3, base_s=0.0)


async def test_an_async_task_runs_with_its_arguments_and_its_result_comes_back(
    server: TestServer, ns: str
) -> None:
    async with open_shop(server.url, ns) as shop:

        @shop.app.task(queue=QUEUE)
        async def add(a: int, b: int) -> dict[str, int]:
            await asyncio.sleep(0)
            return {"sum": a + b}

        node = shop.work()
        job = await add.aenqueue(2, b=3)
        assert await job.result() == {"sum": 5}
        assert await job.state() is JobState.COMPLETED
        await until(lambda: node.counters.completed == 1)


async def test_a_sync_task_runs_in_a_thread_and_does_not_block_the_others(
    server: TestServer, ns: str
) -> None:
    go_on = threading.Event()
    async with open_shop(server.url, ns) as shop:

        @shop.app.task(queue=QUEUE)
        def blocking() -> str:
            assert go_on.wait(10)
            return threading.current_thread().name

        @shop.app.task(queue=QUEUE)
        async def quick() -> int:
            go_on.set()
            return 1

        shop.work()
        first = await blocking.aenqueue()
        await until(lambda: shop.nodes[0].running == 1)
        assert await (await quick.aenqueue()).result() == 1
        assert (await first.result()).startswith("redjob-task")


async def test_a_task_that_raises_is_due_again_until_it_succeeds(
    server: TestServer, ns: str
) -> None:
    async with open_shop(server.url, ns) as shop:

        @shop.app.task(queue=QUEUE, retry=AT_ONCE)
        async def third_time() -> int:
            if current_job().attempt < 3:
                message = "not yet"
                raise RuntimeError(message)
            return current_job().attempt

        node = shop.work()
        job = await third_time.aenqueue()
        for retried in (1, 2):
            await counted(node, "retried", retried)
            info = await job.info()
            assert (info.state, info.failures, info.crashes) == (JobState.SCHEDULED, retried, 0)
            assert info.error is not None
            assert (info.error.type, info.error.message) == ("RuntimeError", "not yet")
            assert await shop.fire() == 1
        assert await job.result() == 3


async def test_a_retry_waits_as_long_as_the_task_says(server: TestServer, ns: str) -> None:
    async with open_shop(server.url, ns) as shop:

        @shop.app.task(queue=QUEUE, retry=Retry(base_s=100.0, jitter="none"))
        async def fails() -> None:
            raise ValueError

        node = shop.work()
        job = await fails.aenqueue()
        await until(lambda: node.counters.retried == 1)
        run_at_ms = (await job.info()).run_at_ms
        assert run_at_ms is not None
        assert run_at_ms - shop.store.now_ms() == pytest.approx(100_000, abs=5000)


async def test_a_job_dies_when_its_attempts_are_used_up_and_keeps_why(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_shop(server.url, ns) as shop:

        @shop.app.task(queue=QUEUE, retry=Retry(max_attempts=1))
        async def fails() -> None:
            message = "for good"
            raise KeyError(message)

        node = shop.work()
        job = await fails.aenqueue()
        with pytest.raises(JobFailed, match="for good"):
            await job.result()
        await until(lambda: node.counters.dead == 1)
        info = await job.info()
        assert (info.state, info.failures, info.attempt) == (JobState.FAILED, 1, 1)
        assert info.error is not None
        assert info.error.traceback is not None
        assert "in fails" in info.error.traceback
        assert "worker/run.py" not in info.error.traceback
        past = decode_attempts((await shop.where(job.id)).attempts).past
        assert past.dead == "failure"
        assert messages(caplog, "dead") == [f"dead job={job.id} attempt=1 cause=failure"]


async def test_snoozing_costs_no_failure(server: TestServer, ns: str) -> None:
    async with open_shop(server.url, ns) as shop:

        @shop.app.task(queue=QUEUE, retry=Retry(max_attempts=1))
        async def later() -> str:
            if current_job().attempt == 1:
                raise Snooze(50.0)
            return "done"

        node = shop.work()
        job = await later.aenqueue()
        await until(lambda: node.counters.snoozed == 1)
        info = await job.info()
        assert (info.state, info.failures) == (JobState.SCHEDULED, 0)
        assert info.run_at_ms is not None
        assert info.run_at_ms - shop.store.now_ms() == pytest.approx(50_000, abs=5000)
        assert await shop.fire(early_ms=60_000) == 1
        assert await job.result() == "done"


@pytest.mark.parametrize("made", [object, lambda: "\ud800", lambda: "x" * (1 << 20)])
async def test_a_result_that_cannot_be_kept_is_a_failure_that_says_so(
    server: TestServer, ns: str, made: type
) -> None:
    async with open_shop(server.url, ns) as shop:

        @shop.app.task(queue=QUEUE, retry=Retry(max_attempts=1))
        async def odd() -> object:
            return made()

        shop.work()
        job = await odd.aenqueue()
        with pytest.raises(JobFailed, match="the task returned"):
            await job.result()
        info = await job.info()
        assert info.error is not None
        assert info.error.type == "ResultInvalid"


async def test_a_result_is_not_kept_where_the_job_asks_for_none(
    server: TestServer, ns: str
) -> None:
    async with open_shop(server.url, ns) as shop:

        @shop.app.task(queue=QUEUE, result_ttl_s=0)
        async def silent() -> str:
            return "unheard"

        node = shop.work()
        job = await silent.aenqueue()
        await until(lambda: node.counters.completed == 1)
        assert (await shop.where(job.id)).result == b""


async def test_what_cannot_be_run_is_dead_at_once_and_its_record_stays(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_shop(server.url, ns) as shop:

        @shop.app.task(queue=QUEUE, name="known")
        async def known(number: int) -> int:
            return number

        unknown = await shop.put("中文\u202e")
        misfit = await shop.put("known", b'{"number":"one"}')
        nothing = await shop.put("known", b"\x00\xff\x9c")
        record = (await shop.where(unknown)).doc
        node = shop.work()
        fine = await known.aenqueue(7)
        assert await fine.result() == 7
        await until(lambda: node.counters.dead == 3)
        kinds = {}
        for job_id in (unknown, misfit, nothing):
            places = await shop.where(job_id)
            attempts = decode_attempts(places.attempts)
            assert places.dead
            assert (attempts.attempt, attempts.past.dead, attempts.past.failures) == (
                1,
                "rejected",
                0,
            )
            assert attempts.past.error is not None
            kinds[job_id] = attempts.past.error.type
        assert kinds == {
            unknown: "UnknownTask", misfit: "PayloadMismatch", nothing: "PayloadMismatch",
        }  # fmt: skip
        assert (await shop.where(unknown)).doc == record
        assert f"dead job={unknown} attempt=1 cause=rejected" in caplog.messages


@pytest.mark.parametrize(
    "doc",
    [
        b"\x00\xff\x9c",
        b"",
        b'{"home":"2026-01-01","created":1,"task":"t","queue":"a b","payload":{}}',
        b'{"task":"t","home":"2026-01-01","created":1790000000000,"queue":"q","payload":{}}',
        b"[" * 5000,
    ],
)
async def test_a_damaged_record_is_dead_at_once_and_the_journal_stays_readable(
    server: TestServer, ns: str, doc: bytes
) -> None:
    async with open_shop(server.url, ns, partitions=1) as shop:

        @shop.app.task(queue=QUEUE)
        async def fine() -> int:
            return 1

        damaged = await shop.put("t", doc=doc or b"-")
        node = shop.work()
        assert await (await fine.aenqueue()).result() == 1
        await until(lambda: node.counters.dead == 1)
        assert (await shop.where(damaged)).dead
        entries: Any = await shop.redis.xrange(shop.part.journal)
        died: list[bytes] = [fields[b"r"] for _, fields in entries if b" F " in fields[b"r"]]
        assert len(died) == 1
        home, place, attempt, _, queue = died[0].split(b"\n")[0].split(b" ")[1:6]
        assert (place, attempt, queue) == (b"F", b"1", QUEUE.encode())
        datetime.strptime(home.decode(), "%Y-%m-%d").replace(tzinfo=UTC)


async def test_a_job_that_came_too_late_is_expired_and_not_begun(
    server: TestServer, ns: str
) -> None:
    began: list[str] = []
    async with open_shop(server.url, ns) as shop:

        @shop.app.task(queue=QUEUE, name="late")
        async def late() -> None:
            began.append(current_job().id)

        job_id = await shop.put("late", options=Options(expires_at=shop.store.now_ms() - 1))
        node = shop.work()
        await until(lambda: node.counters.expired == 1)
        outcome = json.loads((await shop.where(job_id)).result)
        assert outcome["state"] == "EXPIRED"
        assert began == []


async def test_an_async_task_over_its_time_is_cancelled_and_failed(
    server: TestServer, ns: str
) -> None:
    cleaned: list[bool] = []
    async with open_shop(server.url, ns) as shop:

        @shop.app.task(queue=QUEUE, timeout_s=0.05, retry=Retry(max_attempts=1))
        async def slow() -> None:
            try:
                await asyncio.sleep(30)
            finally:
                cleaned.append(True)

        shop.work()
        job = await slow.aenqueue()
        with pytest.raises(JobFailed, match=r"ran longer than timeout_s=0\.05"):
            await job.result()
        assert cleaned == [True]


async def test_a_thread_over_its_time_is_flagged_and_what_it_raises_then_is_a_timeout(
    server: TestServer, ns: str
) -> None:
    async with open_shop(server.url, ns) as shop:

        @shop.app.task(queue=QUEUE, timeout_s=0.05, retry=Retry(max_attempts=1))
        def slow() -> None:
            job = current_job()
            while not job.cancelled:
                time.sleep(0.005)
            raise JobCancelled

        shop.work()
        job = await slow.aenqueue()
        with pytest.raises(JobFailed, match=r"ran longer than timeout_s=0\.05"):
            await job.result()


async def test_a_thread_that_ignores_its_time_is_failed_and_keeps_its_slot(
    server: TestServer, ns: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("redjob.worker.run.THREAD_GRACE_S", 0.05)
    end = threading.Event()
    async with open_shop(server.url, ns) as shop:

        @shop.app.task(queue=QUEUE, timeout_s=0.05, retry=Retry(max_attempts=1))
        def deaf() -> None:
            end.wait(20)

        @shop.app.task(queue=QUEUE)
        async def next_one() -> int:
            return 1

        shop.work(concurrency=1)
        job = await deaf.aenqueue()
        with pytest.raises(JobFailed, match="timeout_s"):
            await job.result()
        waiting = await next_one.aenqueue()
        assert await waiting.state() is JobState.DISPATCHED
        end.set()
        assert await waiting.result() == 1
        assert len(messages(caplog, "thread_overran")) == 1


async def test_cancelling_a_running_async_task_ends_it_as_cancelled(
    server: TestServer, ns: str
) -> None:
    async with open_shop(server.url, ns) as shop:

        @shop.app.task(queue=QUEUE)
        async def forever() -> None:
            await asyncio.sleep(60)

        node = shop.work()
        job = await forever.aenqueue()
        await until(lambda: node.running == 1)
        await job.cancel()
        await until(lambda: node.counters.cancelled == 1)
        assert await job.state() is JobState.CANCELLED


async def test_cancelling_a_thread_flags_it(server: TestServer, ns: str) -> None:
    async with open_shop(server.url, ns) as shop:

        @shop.app.task(queue=QUEUE)
        def forever() -> None:
            job = current_job()
            while not job.cancelled:
                time.sleep(0.005)
            raise JobCancelled

        node = shop.work()
        job = await forever.aenqueue()
        await until(lambda: node.running == 1)
        await job.cancel()
        await until(lambda: node.counters.cancelled == 1)
        assert await job.state() is JobState.CANCELLED


async def test_a_cancel_on_the_last_attempt_is_a_cancel_and_not_a_death(
    server: TestServer, ns: str
) -> None:
    async with open_shop(server.url, ns) as shop:

        @shop.app.task(queue=QUEUE, retry=Retry(max_attempts=1))
        async def breaks_off() -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                message = "while cleaning up"
                raise RuntimeError(message) from None

        node = shop.work()
        job = await breaks_off.aenqueue()
        await until(lambda: node.running == 1)
        await job.cancel()
        await until(lambda: node.counters.cancelled == 1)
        assert await job.state() is JobState.CANCELLED


async def test_a_task_that_finishes_although_it_was_cancelled_is_completed(
    server: TestServer, ns: str
) -> None:
    async with open_shop(server.url, ns) as shop:

        @shop.app.task(queue=QUEUE)
        async def stubborn() -> str:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            return "done"

        node = shop.work()
        job = await stubborn.aenqueue()
        await until(lambda: node.running == 1)
        await job.cancel()
        assert await job.result() == "done"


async def test_a_key_gives_the_same_job_after_it_has_ended(server: TestServer, ns: str) -> None:
    starts: list[str] = []
    async with open_shop(server.url, ns) as shop:

        @shop.app.task(queue=QUEUE)
        async def once() -> None:
            starts.append(current_job().idempotency_key)

        node = shop.work()
        job = await once.options(idempotency_key="welcome:u1").aenqueue()
        await until(lambda: node.counters.completed == 1)
        again = await once.options(idempotency_key="welcome:u1").aenqueue()
        assert (again.id, again.created) == (job.id, False)
        assert await again.state() is JobState.COMPLETED
        assert starts == ["welcome:u1"]


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class Fatal(BaseException):
    pass


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("\ud800 \u202e \x00"),
        Unspeakable(),
        Fatal("base"),
        SystemExit(3),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        GeneratorExit(),
        StopAsyncIteration(),
        JobCancelled("although nobody asked"),
        RuntimeError("x" * 100_000),
        MemoryError(),
        BaseExceptionGroup("several", [Fatal(), ValueError("\udfff")]),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("threaded", [False, True], ids=["async", "thread"])
@pytest.mark.server("redis")
async def test_whatever_a_task_raises_fails_its_job_alone(
    server: TestServer, ns: str, error: BaseException, threaded: bool
) -> None:
    async with open_shop(server.url, ns, partitions=1) as shop:

        @shop.app.task(queue=QUEUE, name="async", retry=Retry(max_attempts=1))
        async def raises() -> None:
            raise error

        @shop.app.task(queue=QUEUE, name="thread", retry=Retry(max_attempts=1))
        def raises_in_thread() -> None:
            raise error

        @shop.app.task(queue=QUEUE)
        async def fine() -> int:
            return 1

        node = shop.work()
        job = await (raises_in_thread if threaded else raises).aenqueue()
        await until(lambda: node.counters.dead == 1)
        info = await job.info()
        assert info.state is JobState.FAILED
        assert info.error is not None
        assert info.error.type in {
            type(error).__name__,
            "RuntimeError",
        }  # StopIteration turns into it
        size = len(info.error.message) + len(info.error.traceback or "")
        assert size <= 8192
        assert await (await fine.aenqueue()).result() == 1


async def test_a_task_knows_its_job_and_hands_a_checkpoint_to_the_next_attempt(
    server: TestServer, ns: str
) -> None:
    seen: list[tuple[object, ...]] = []
    async with open_shop(server.url, ns) as shop:

        @shop.app.task(queue=QUEUE, retry=AT_ONCE, timeout_s=60)
        async def steps() -> None:
            job = current_job()
            assert job.deadline is not None
            left = job.deadline - datetime.now(UTC)
            assert timedelta(seconds=40) < left < timedelta(seconds=80)
            seen.append((job.attempt, job.last_checkpoint, job.tenant, job.queue, job.task))
            if job.attempt == 1:
                job.checkpoint({"page": 7})
                raise RuntimeError
            assert job.idempotency_key == job.id

        node = shop.work()
        job = await steps.options(tenant="acme").aenqueue()
        await until(lambda: node.counters.retried == 1)
        await shop.fire()
        await job.result()
        name = steps.name
        assert seen == [(1, None, "acme", QUEUE, name), (2, {"page": 7}, "acme", QUEUE, name)]


@pytest.mark.parametrize("threaded", [False, True], ids=["async", "thread"])
async def test_progress_and_checkpoint_are_stored_while_the_task_runs(
    server: TestServer, ns: str, threaded: bool
) -> None:
    end = threading.Event()

    def tell() -> None:
        for percent in range(101):
            current_job().progress(percent)
        current_job().checkpoint([1, 2])

    async with open_shop(server.url, ns) as shop:

        @shop.app.task(queue=QUEUE, name="async")
        async def works() -> None:
            tell()
            await until(end.is_set)

        @shop.app.task(queue=QUEUE, name="thread")
        def works_in_thread() -> None:
            tell()
            end.wait(20)

        shop.work(lease_s=60, heartbeat_s=20)  # not by the ordinary beat
        job = await (works_in_thread if threaded else works).aenqueue()

        async def told() -> bool:
            return bool((await job.info()).progress == 100)

        await until(told)
        attempts = decode_attempts((await shop.where(job.id)).attempts)
        assert (attempts.attempt, bytes(attempts.past.checkpoint)) == (0, b"[1,2]")
        end.set()
        await job.result()
        assert (await job.info()).progress is None


async def test_who_starts_a_job_after_a_crash_says_so(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Who ended that attempt may have been killed before it could write its own line."""
    async with open_shop(server.url, ns) as shop:

        @shop.app.task(queue=QUEUE, name="again")
        async def again() -> None:
            pass

        job_id = await shop.put("again")
        past = encode_past(Past(crashes=1, last="crashed"))
        part = shop.store.keys.of_job(job_id)
        await shop.redis.hset(part.attempts, job_id, b"1 tag " + past)
        node = shop.work()
        await counted(node, "completed", 1)
        assert messages(caplog, "starts_again") == [
            f"starts_again job={job_id} attempt=1 cause=crashed"
        ]
