"""The overdue watch and the process as a whole: what it does where nobody else does, and for how long."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from redjob.config import SweeperConfig
from redjob.store.aio import AsyncStore
from redjob.store.settings import settings_from_url
from redjob.sweeper import SweeperNode
from tests.flow.sweeping import QUEUE, QUICK, Made, Stage, staged, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.support.servers import OwnServerFactory, TestServer

pytestmark = [pytest.mark.anyio, pytest.mark.server("valkey", "redis", "cluster")]


@pytest.fixture(autouse=True)
def _info_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "redjob.sweeper")


async def overdue(stage: Stage, count: int) -> list[Made]:
    """Jobs that have been due for long, one after another."""
    made = await stage.enqueue(count, in_ms=60_000)
    scores = {job.id: 1 + index for index, job in enumerate(made)}
    stage.redis.zadd(stage.part.queue(QUEUE).due, scores)
    stage.redis.zadd(stage.part.queues, {QUEUE: 1})
    return made


async def test_jobs_that_no_owner_fires_are_fired_and_told_once_a_burst(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake(batch=3)
        made = await overdue(stage, 10)
        swept = await until(node.tick, lambda total: total.fired == 10)
        assert swept.fired == 10
        assert set(await stage.start(20)) == {job.id for job in made}
        assert caplog.text.count("overdue_fired partition=0 queue=q count=10") == 1
        await node.tick()
        await overdue(stage, 2)
        await until(node.tick, lambda total: total.fired == 2)
        assert caplog.text.count("overdue_fired") == 2


async def test_nothing_is_fired_before_it_is_overdue(server: TestServer, ns: str) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake(overdue_s=60)
        (job,) = await stage.enqueue(in_ms=10)
        for _ in range(5):
            await asyncio.sleep(0.01)
            assert (await node.tick()).fired == 0
        assert (await stage.where(job)).due


async def test_an_owner_that_makes_headway_is_left_alone(server: TestServer, ns: str) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake(overdue_s=0.001)
        made = await overdue(stage, 5)
        due = stage.part.queue(QUEUE).due
        for _ in made[1:]:
            assert (await node.tick()).fired == 0
            stage.redis.zpopmin(due)  # as an owner does it: the first of them goes
        assert (await node.tick()).fired == 0
        assert (await node.tick()).fired == 1


async def test_jobs_over_the_depth_limit_are_parked_as_an_owner_would(
    server: TestServer, ns: str
) -> None:
    async with staged(server.url, ns, depth_limit="2") as stage:
        node = await stage.awake()
        made = await overdue(stage, 5)
        await until(node.tick, lambda total: total.fired == 5)
        q = stage.part.queue(QUEUE)
        assert (stage.redis.xlen(q.stream), stage.redis.zcard(q.ready)) == (2, 3)
        assert [(await stage.where(job)).due for job in made] == [b""] * 5


@asynccontextmanager
async def running(store: AsyncStore, config: SweeperConfig = QUICK) -> AsyncGenerator[None]:
    """A sweeper at work, which must end when it is cancelled and by nothing else."""
    task = asyncio.create_task(SweeperNode(store, config).run())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def gone_from(stage: Stage, key: str, job_id: str) -> None:
    """Wait until a hash has a job no more."""
    async with asyncio.timeout(10):
        while True:
            if not stage.redis.hexists(key, job_id):
                return
            await asyncio.sleep(0.01)


async def logged(caplog: pytest.LogCaptureFixture, words: str) -> None:
    """Wait until the log has these words."""
    async with asyncio.timeout(20):
        while True:
            if words in caplog.text:
                return
            await asyncio.sleep(0.01)


async def test_a_sweeper_started_first_waits_for_a_scheduler_to_open_the_namespace(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = AsyncStore(settings_from_url(server.url), ns)
    async with running(store):
        await logged(caplog, "what=namespace_closed")
        async with staged(server.url, ns) as stage:
            (job,) = await stage.enqueue()
            await stage.start()
            await gone_from(stage, stage.part.runs, job.id)
    await store.aclose()
    assert caplog.text.count("sweep_trouble what=namespace_closed") == 1


@pytest.mark.slow
async def test_a_sweeper_outlives_its_redis_and_goes_on_once_an_owner_has_checked_it(
    own_server: OwnServerFactory, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = own_server()
    store = AsyncStore(settings_from_url(server.url, deadline_s=0.5), ns)
    async with staged(server.url, ns) as stage, running(store):
        await stage.awake()
        await stage.enqueue()
        (started,) = await stage.start(lease_ms=300)
        server.kill()
        await logged(caplog, "what=tick")
        server.start()
        await stage.own(2)
        await gone_from(stage, stage.part.runs, started)
    await store.aclose()
    assert caplog.text.count("sweep_trouble what=tick") == 1
    assert "sweep_recovered what=tick" in caplog.text


async def test_a_bug_in_one_step_does_not_end_the_sweeper(
    server: TestServer, ns: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(server.url, ns) as stage:
        steps = iter([ZeroDivisionError("a bug")])
        tick = SweeperNode.tick

        async def once_broken(node: SweeperNode) -> object:
            for bug in steps:
                raise bug
            return await tick(node)

        monkeypatch.setattr(SweeperNode, "tick", once_broken)
        store = AsyncStore(settings_from_url(server.url), ns)
        async with running(store):
            (job,) = await stage.enqueue()
            await stage.start()
            await gone_from(stage, stage.part.runs, job.id)
        await store.aclose()
    assert caplog.text.count("sweep_failed what=tick") == 1
