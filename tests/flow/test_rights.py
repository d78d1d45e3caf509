"""A Redis user with the rights that the documentation names, and no others, is enough for everything."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from redis import Redis

from redjob import JobState, Redjob, Retry
from redjob.calls.overview import partition_facts
from redjob.config import SchedulerConfig, SweeperConfig, WorkerConfig
from redjob.errors import ServerUnsuitable
from redjob.scheduler import SchedulerNode
from redjob.store.aio import AsyncStore
from redjob.store.settings import settings_from_url
from redjob.sweeper import SweeperNode
from redjob.worker import WorkerNode
from tests.flow.commands import redjob
from tests.flow.working import until

if TYPE_CHECKING:
    from tests.support.servers import OwnClusterFactory, OwnServerFactory

pytestmark = pytest.mark.anyio
SETINFO = "+client|setinfo"  # Redis 7.0 does not know it
DOCS = Path(__file__).parents[2] / "docs" / "operations.md"


def rule() -> list[str]:
    """The command that makes the user, as documented."""
    found = re.search(r"^ACL SETUSER redjob .*$", DOCS.read_text(), re.MULTILINE)
    assert found is not None
    return found[0].split()


def with_user(url: str) -> str:
    return url.replace("://", "://redjob:secret@", 1)


async def work_through(url: str) -> None:
    """What clients, schedulers, workers, sweepers and people do."""
    stores = [AsyncStore(settings_from_url(url), "redjob") for _ in range(2)]
    scheduler = SchedulerNode(stores[0], SchedulerConfig(), rng=Random(1))
    running = [asyncio.create_task(scheduler.run())]
    app = Redjob(url)
    failed_once: set[str] = set()

    @app.task(name="double", retry=Retry(max_attempts=3, base_s=0.05))
    async def double(x: int) -> int:
        if x == 13 and not failed_once:
            failed_once.add("13")
            raise ValueError(x)
        return 2 * x

    try:
        await asyncio.wait_for(scheduler.wait_ready(), 20)
        sweeper = SweeperNode(stores[1], SweeperConfig(every_s=0.05, scan_every_s=0.1))
        worker = WorkerNode(app, WorkerConfig(queues=("default",)))
        running += [asyncio.create_task(sweeper.run()), asyncio.create_task(worker.run())]
        assert await (await double.aenqueue(4)).result(timeout_s=10) == 8
        assert await (await double.aenqueue(13)).result(timeout_s=10) == 26
        later = [await double.aenqueue_in(0.3, n) for n in range(20)]
        assert [await job.result(timeout_s=10) for job in later] == [2 * n for n in range(20)]
        for result in await double.aenqueue_many([(n,) for n in range(20)]):
            assert result.job is not None
            await result.job.result(timeout_s=10)
        far = await double.aenqueue_in(3600, 1)
        await far.cancel()
        assert await far.state() is JobState.CANCELLED
        await until(lambda: swept(stores[1]))
        place = ("--redis-url", url, "--namespace", "redjob")
        for command in (["queues"], ["dead", "list"], ["job", "show", far.id], ["doctor"]):
            ran = await asyncio.to_thread(redjob, *command, *place)
            assert "may not" not in ran.err + ran.out, ran
            assert "NOPERM" not in ran.err + ran.out, ran
    finally:
        for task in running:
            task.cancel()
        ends = await asyncio.gather(*running, return_exceptions=True)
        await app.aclose()
        for store in stores:
            await store.aclose()
    assert [end for end in ends if not isinstance(end, asyncio.CancelledError)] == []


async def swept(store: AsyncStore) -> bool:
    """Whether a sweeper was heard of in every partition."""
    facts = await store.query_all([partition_facts(part) for part in store.keys.parts])
    return all(fact is not None and fact.sweeper_seen_ms for fact in facts)


def refused(server: Redis) -> list[str]:
    """What the server has refused; reading one setting is optional."""
    log: Any = server.acl_log()
    words = [str(entry["object"]) for entry in log]
    return [word for word in words if "config" not in word]


@pytest.mark.parametrize("kind", ["valkey", "redis"])
async def test_the_documented_rights_are_enough_on_one_server(
    own_server: OwnServerFactory, kind: Any
) -> None:
    server = own_server(kind)
    with Redis.from_url(server.url, decode_responses=True) as client:
        client.execute_command(*rule(), *([SETINFO] if kind == "valkey" else []))
        await work_through(with_user(server.url))
        assert refused(client) == []


async def test_the_documented_rights_are_enough_on_a_cluster(
    own_cluster: OwnClusterFactory,
) -> None:
    nodes = own_cluster("valkey")
    for node in nodes.nodes:
        node.command(*rule(), SETINFO)
    await work_through(with_user(nodes.url))
    assert [refused(node.redis) for node in nodes.nodes] == [[]] * len(nodes.nodes)


async def test_what_a_user_may_not_do_is_named(own_server: OwnServerFactory) -> None:
    server = own_server()
    with Redis.from_url(server.url) as client:
        client.execute_command(*rule(), "-evalsha", "-hmget")
    store = AsyncStore(settings_from_url(with_user(server.url)), "redjob")
    with pytest.raises(ServerUnsuitable, match=r"may not do this.*hmget"):
        await store.open(create=4)
    await store.aclose()
    wrong = AsyncStore(settings_from_url(server.url.replace("://", "://redjob:x@", 1)), "redjob")
    with pytest.raises(ServerUnsuitable, match="refuses these credentials"):
        await wrong.open()
