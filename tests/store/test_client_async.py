"""The async client and the async half of tasks: the same words, the same meaning."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from redjob import (
    Args,
    AsyncClient,
    CancelResult,
    IdempotencyConflict,
    InvalidArgument,
    JobNotFound,
    JobSpec,
    JobState,
    NotReady,
    PayloadMismatch,
    Redjob,
    WrongState,
)
from redjob.model import ErrorInfo

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.opened import Opened
    from tests.support.servers import TestServer

pytestmark = [pytest.mark.anyio, pytest.mark.server("valkey", "redis", "cluster")]
HOUR = timedelta(hours=1)


@pytest.fixture
async def client(opened: Opened) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(opened.url, namespace=opened.namespace) as client:
        yield client


@pytest.fixture
async def app(opened: Opened) -> AsyncIterator[Redjob]:
    app = Redjob(opened.url, namespace=opened.namespace)
    yield app
    await app.aclose()


async def test_jobs_are_accepted_now_later_and_after_a_delay(client: AsyncClient) -> None:
    now = await client.enqueue("t", {"a": 1}, queue="q", priority="high")
    later = await client.enqueue_at(datetime.now(UTC) + HOUR, "t")
    after = await client.enqueue_in(HOUR, "t")
    assert await now.state() is JobState.DISPATCHED
    assert await later.state() is await after.state() is JobState.SCHEDULED
    info = await client.info(now.id)
    assert (info.payload, info.queue, info.priority) == ({"a": 1}, "q", 2)
    assert await client.state(later.id) is JobState.SCHEDULED


async def test_a_key_names_one_job(client: AsyncClient) -> None:
    first = await client.enqueue("t", {"a": 1}, idempotency_key="k")
    second = await client.enqueue("t", {"a": 1}, idempotency_key="k")
    assert (first.id, first.created, second.created) == (second.id, True, False)
    with pytest.raises(IdempotencyConflict) as caught:
        await client.enqueue("t", {"a": 2}, idempotency_key="k")
    assert caught.value.job_id == first.id


async def test_hundreds_of_tasks_share_a_client(client: AsyncClient, opened: Opened) -> None:
    jobs = await asyncio.gather(*(client.enqueue("t", {"n": n}) for n in range(400)))
    assert {job.id for job in jobs} == set(opened.records())


async def test_a_job_is_cancelled_rescheduled_and_replayed(
    client: AsyncClient, opened: Opened
) -> None:
    job = await client.enqueue_in(HOUR, "t", queue="q")
    await job.reschedule(datetime(2020, 1, 1, tzinfo=UTC))
    assert (await job.info()).run_at_ms == 1_577_836_800_000
    assert await job.cancel() is CancelResult.CANCELLED
    with pytest.raises(WrongState):
        await job.replay()
    dead = await client.enqueue("t", queue="q")
    await asyncio.to_thread(opened.fail, dead.id, "q", ErrorInfo(type="E", message="m", at=1))
    await dead.replay()
    assert await dead.state() is JobState.SCHEDULED
    with pytest.raises(JobNotFound):
        await client.cancel("01a22a3b-47f3-794c-8bd1-9640c3b23582")
    with pytest.raises(InvalidArgument, match="job_id: "):
        client.job("x")


async def test_many_jobs_are_answered_one_by_one(client: AsyncClient, opened: Opened) -> None:
    specs = [JobSpec("t", {"n": n}, queue="q") for n in range(1234)]
    specs[7] = JobSpec("bad name")
    specs += [JobSpec("t", idempotency_key="k"), JobSpec("t", idempotency_key="k")]
    results = await client.enqueue_many(specs)
    assert [n for n, result in enumerate(results) if result.error] == [7]
    assert len(opened.records()) == 1234
    assert [result.job.created for result in results[-2:] if result.job] == [True, False]


async def test_a_namespace_that_nobody_has_opened_says_how(server: TestServer, ns: str) -> None:
    async with AsyncClient(server.url, namespace=ns) as client:
        with pytest.raises(NotReady, match="start `redjob scheduler`"):
            await client.enqueue("t")
        with pytest.raises(NotReady):
            await client.enqueue_many([JobSpec("t")])


async def test_a_task_has_an_async_twin_of_each_way(app: Redjob) -> None:
    @app.task(name="t", queue="q")
    async def run(a: int, b: str = "x") -> int:
        return a

    assert await run(3) == 3
    assert (await (await run.aenqueue(1)).info()).payload == {"a": 1}
    later = await run.aenqueue_at(datetime.now(UTC) + HOUR, 1, b="y")
    assert (await later.info()).payload == {"a": 1, "b": "y"}
    assert await (await run.aenqueue_in(HOUR, 1)).state() is JobState.SCHEDULED
    results = await run.aenqueue_many([(1,), {"a": 2}, Args(3, b="z"), ("x",), 4])  # type: ignore[list-item]
    assert [type(result.error).__name__ for result in results] == [
        "NoneType", "NoneType", "NoneType", "PayloadMismatch", "InvalidArgument",
    ]  # fmt: skip
    with pytest.raises(PayloadMismatch):
        await run.aenqueue("x")  # type: ignore[arg-type]


def test_each_event_loop_has_a_client_of_its_own(opened: Opened) -> None:
    app = Redjob(opened.url, namespace=opened.namespace)

    @app.task(name="t")
    async def run() -> None: ...

    async def main() -> str:
        assert app.async_client() is app.async_client()
        job = await run.aenqueue()
        await app.aclose()
        return job.id

    assert {asyncio.run(main()), asyncio.run(main())} == set(opened.records())
    with pytest.raises(RuntimeError):
        app.async_client()
