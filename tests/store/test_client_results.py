"""Waiting for results, blocking and async: woken at once, never for ever, and told why."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from redjob import (
    AsyncClient,
    AsyncJob,
    Client,
    InvalidArgument,
    JobFailed,
    JobNotFound,
    ResultTimeout,
)
from redjob.model import ErrorInfo
from tests.support.connect import connections

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from redjob.job import Job
    from tests.support.opened import Opened

pytestmark = [pytest.mark.anyio, pytest.mark.server("valkey", "redis", "cluster")]
ERROR = ErrorInfo(type="ValueError", message="no", at=5)
SOON_S = 0.5  # far less than the second after which everybody looks anyway


@pytest.fixture
def client(opened: Opened) -> Iterator[Client]:
    with Client(opened.url, namespace=opened.namespace) as client:
        yield client


@pytest.fixture
async def aclient(opened: Opened) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(opened.url, namespace=opened.namespace) as client:
        yield client


class Waiter:
    """Waits for a job in a thread of its own."""

    def __init__(self, job: Job, timeout_s: float = 20.0) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self.ended_at = 0.0
        self._thread = threading.Thread(target=self._wait, args=(job, timeout_s))
        self._thread.start()

    def _wait(self, job: Job, timeout_s: float) -> None:
        try:
            self.value = job.result(timeout_s)
        except BaseException as error:  # noqa: BLE001 - for the test to look at
            self.error = error
        self.ended_at = time.monotonic()

    def join(self) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive()


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait for something that is on its way."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.002)


def blocked(opened: Opened) -> int:
    """How many connections wait in a blocking read of this namespace's servers."""
    return sum(c["cmd"] == "xread" and "b" in c["flags"] for c in connections(opened.redis))


# what has ended already


def test_the_result_of_a_completed_job_is_its_json(client: Client, opened: Opened) -> None:
    job = client.enqueue("t", queue="q")
    opened.complete(job.id, "q", b'{"sum":[1,2.5,null,"\xc3\xbc"]}')
    assert job.result(0) == {"sum": [1, 2.5, None, "ü"]}
    assert client.result(job.id) == {"sum": [1, 2.5, None, "ü"]}
    assert job.info().result == {"sum": [1, 2.5, None, "ü"]}


def test_a_result_that_is_gone_is_none_while_the_end_is_known(
    client: Client, opened: Opened
) -> None:
    job = client.enqueue("t", queue="q", result_ttl_s=0)
    opened.complete(job.id, "q", b"7")
    assert job.result(0) is None
    keyed = client.enqueue("t", queue="q", result_ttl_s=0, idempotency_key="k")
    opened.complete(keyed.id, "q", b"7")
    opened.redis.hdel(opened.keys.of_job(keyed.id).finished, keyed.id)
    assert keyed.result(0) is None


def test_the_result_of_an_earlier_life_of_a_key_is_not_that_of_a_later_end(
    client: Client, opened: Opened
) -> None:
    job = client.enqueue("t", queue="q", idempotency_key="k")
    opened.complete(job.id, "q", b"7")
    opened.redis.delete(opened.keys.of_job(job.id).job(job.id))  # its window has passed
    again = client.enqueue("t", queue="q", idempotency_key="k")
    assert again.created
    again.cancel()
    with pytest.raises(JobFailed, match="ended CANCELLED"):
        again.result(0)


def test_every_other_end_is_a_failure_that_says_how(client: Client, opened: Opened) -> None:
    dead, late, gone = (client.enqueue("t", queue="q") for _ in range(3))
    opened.fail(dead.id, "q", ERROR)
    opened.expire(late.id, "q")
    gone.cancel()
    for job, state, reason in (
        (dead, "FAILED", "ValueError: no"),
        (late, "EXPIRED", None),
        (gone, "CANCELLED", None),
    ):
        with pytest.raises(JobFailed) as caught:
            job.result(5)
        assert (caught.value.job_id, caught.value.state, caught.value.reason) == (
            job.id, state, reason,
        )  # fmt: skip


def test_an_unknown_job_is_told_at_once(client: Client, opened: Opened) -> None:
    job = client.enqueue("t", queue="q")
    opened.redis.delete(opened.keys.of_job(job.id).job(job.id))
    started = time.monotonic()
    with pytest.raises(JobNotFound):
        client.result(job.id, 10)
    assert time.monotonic() - started < SOON_S


@pytest.mark.parametrize("timeout_s", [-1, float("nan"), float("inf")])
def test_a_wait_that_makes_no_sense_is_refused(client: Client, timeout_s: float) -> None:
    with pytest.raises(InvalidArgument, match="timeout_s: "):
        client.enqueue("t").result(timeout_s)


# what ends later


def test_who_waits_is_woken_by_the_end(client: Client, opened: Opened) -> None:
    job = client.enqueue("t", queue="q")
    waiter = Waiter(job)
    until(lambda: blocked(opened))
    opened.complete(job.id, "q", b"[1]")
    ended_at = time.monotonic()
    waiter.join()
    assert waiter.value == [1]
    assert waiter.ended_at - ended_at < SOON_S


def test_the_ends_of_other_jobs_do_not_confuse_who_waits(client: Client, opened: Opened) -> None:
    jobs = [client.enqueue("t", queue="q") for _ in range(200)]
    part = opened.keys.of_job(jobs[0].id)
    near = [job for job in jobs if opened.keys.of_job(job.id) is part]
    waiter = Waiter(near[-1])
    until(lambda: blocked(opened))
    for number, job in enumerate(near):
        opened.complete(job.id, "q", b"%d" % number)
    waiter.join()
    assert waiter.value == len(near) - 1


def test_a_lost_announcement_is_made_good_by_a_look(client: Client, opened: Opened) -> None:
    job = client.enqueue("t", queue="q")
    part = opened.keys.of_job(job.id)
    waiter = Waiter(job)
    until(lambda: blocked(opened))
    opened.redis.delete(part.waiters)
    opened.complete(job.id, "q", b"1")
    assert opened.redis.exists(part.done) == 0
    waiter.join()
    assert waiter.value == 1


def test_waiting_ends_at_its_time(client: Client) -> None:
    job = client.enqueue("t")
    started = time.monotonic()
    with pytest.raises(ResultTimeout) as caught:
        job.result(1.3)
    assert 1.3 <= time.monotonic() - started < 3
    assert (caught.value.job_id, caught.value.timeout_s) == (job.id, 1.3)
    assert isinstance(caught.value, TimeoutError)


def test_nobody_announces_ends_that_nobody_waits_for(client: Client, opened: Opened) -> None:
    job = client.enqueue("t", queue="q")
    opened.complete(job.id, "q")
    part = opened.keys.of_job(job.id)
    assert opened.redis.exists(part.done, part.waiters) == 0
    job.result()
    assert 0 < opened.redis.ttl(part.waiters) <= 60


# async


async def later(opened: Opened, act: Callable[[], None]) -> None:
    await asyncio.to_thread(until, lambda: blocked(opened))
    await asyncio.to_thread(act)


async def test_an_async_waiter_is_woken_by_the_end(aclient: AsyncClient, opened: Opened) -> None:
    job = await aclient.enqueue("t", queue="q")
    started = time.monotonic()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(job.result(20))
        group.create_task(later(opened, lambda: opened.complete(job.id, "q", b"[1]")))
    assert waiting.result() == [1]
    assert time.monotonic() - started < 5


async def test_many_async_waiters_share_a_connection_a_partition(
    aclient: AsyncClient, opened: Opened
) -> None:
    jobs = [await aclient.enqueue("t", queue="q") for _ in range(100)]
    waiting = [asyncio.create_task(job.result(30)) for job in jobs]
    partitions = len({opened.keys.of_job(job.id).index for job in jobs})
    await asyncio.to_thread(until, lambda: blocked(opened) == partitions)

    def complete() -> None:
        for number, job in enumerate(jobs):
            opened.complete(job.id, "q", b"%d" % number)

    await asyncio.to_thread(complete)
    assert await asyncio.gather(*waiting) == list(range(100))


async def test_an_async_wait_ends_at_its_time_and_may_be_cancelled(aclient: AsyncClient) -> None:
    job = await aclient.enqueue("t")
    with pytest.raises(ResultTimeout):
        await job.result(0.2)
    waiting = asyncio.create_task(job.result(20))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(ResultTimeout):
        await job.result(0)


async def test_every_other_end_is_told_to_an_async_waiter(
    aclient: AsyncClient, opened: Opened
) -> None:
    job = await aclient.enqueue("t", queue="q")
    await asyncio.to_thread(opened.fail, job.id, "q", ERROR)
    with pytest.raises(JobFailed, match="ended FAILED: ValueError: no"):
        await job.result()
    unknown = AsyncJob(aclient, "01a22a3b-47f3-794c-8bd1-9640c3b23582")
    with pytest.raises(JobNotFound):
        await unknown.result()


async def test_a_client_closes_while_somebody_waits(opened: Opened) -> None:
    client = AsyncClient(opened.url, namespace=opened.namespace)
    job = await client.enqueue("t", queue="q")
    waiting = asyncio.create_task(job.result(1.5))
    await asyncio.to_thread(until, lambda: blocked(opened))
    await client.aclose()
    assert blocked(opened) == 0
    with pytest.raises(ResultTimeout):
        await waiting
    await client.aclose()
