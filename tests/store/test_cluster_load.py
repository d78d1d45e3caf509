"""A cluster under load, with calls given up, connections cut, scripts forgotten and a primary that is frozen."""

from __future__ import annotations

import asyncio
import time
from random import Random
from typing import TYPE_CHECKING

import pytest

from redjob import AsyncClient, Client
from redjob.calls.overview import partition_facts
from redjob.calls.reads import Query
from redjob.errors import StoreUnavailable
from redjob.store.aio import AsyncStore
from redjob.store.settings import settings_from_url
from tests.support.opened import Opened
from tests.support.routed import new_job, routed, value_at

if TYPE_CHECKING:
    from tests.support.cluster import ClusterNodes
    from tests.support.servers import OwnClusterFactory, TestServer

pytestmark = pytest.mark.anyio
NAMES = [str(number) for number in range(5)]


@pytest.mark.server("cluster", "valkey")
async def test_calls_that_are_given_up_never_leave_their_reply_to_another(
    server: TestServer, ns: str
) -> None:
    rng = Random(3)
    with Opened(server.url, ns) as opened:
        for part in opened.keys.parts:
            for name in NAMES:
                opened.redis.set(f"{part.base}{name}", f"{part.index}/{name}")
        store = AsyncStore(settings_from_url(server.url), ns)
        parts = (await store.open()).parts

        async def ask(number: int) -> None:
            part, name = parts[number % len(parts)], NAMES[number % 5]
            if number % 3:
                assert await store.query(value_at(part, name)) == f"{part.index}/{name}".encode()
                return
            queries: list[Query[bytes | None]] = [value_at(one, name) for one in parts]
            found = await store.query_all(queries)
            assert found == [f"{one.index}/{name}".encode() for one in parts]

        async def ask_or_give_up(number: int) -> bool:
            try:
                async with asyncio.timeout(rng.choice([0.0002, 0.001, 0.004, 5])):
                    await ask(number)
            except TimeoutError:
                return False
            return True

        answered = 0
        for start in range(0, 2000, 50):
            rounds = [ask_or_give_up(number) for number in range(start, start + 50)]
            answered += sum(await asyncio.gather(*rounds))
        assert 200 < answered < 1900, "some were given up and some were not"
        await asyncio.gather(*(ask(number) for number in range(100)))
        await store.aclose()


async def meddle(nodes: ClusterNodes, done: asyncio.Event) -> int:
    """Cut all connections to one primary after another, and let it forget its scripts."""
    rounds = 0
    while not done.is_set():
        for node in nodes.primaries():
            await asyncio.to_thread(node.redis.script_flush)
            await asyncio.to_thread(
                node.command, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"
            )
            rounds += 1
            await asyncio.sleep(0.01)
    return rounds


async def test_each_job_is_accepted_once_while_connections_are_cut_and_scripts_forgotten(
    own_cluster: OwnClusterFactory, ns: str
) -> None:
    nodes = own_cluster()
    with Opened(nodes.url, ns) as opened, Client(nodes.url, namespace=ns) as client:
        ids: list[str] = []

        def enqueue_many() -> None:
            ids.extend([client.enqueue("t", {}, queue="q").id for _ in range(150)])

        async with AsyncClient(nodes.url, namespace=ns) as aclient:

            async def enqueue() -> None:
                ids.extend([(await aclient.enqueue("t", {}, queue="q")).id for _ in range(50)])

            done = asyncio.Event()
            meddling = asyncio.create_task(meddle(nodes, done))
            threads = [asyncio.to_thread(enqueue_many) for _ in range(2)]
            await asyncio.gather(*threads, *(enqueue() for _ in range(6)))
            done.set()
            assert await meddling > 10
        assert len(set(ids)) == len(ids) == 600
        assert opened.entries("q") == 600
        assert opened.records().keys() == set(ids)


@pytest.mark.solo
async def test_a_frozen_primary_holds_up_only_its_own_slots(
    own_cluster: OwnClusterFactory, ns: str
) -> None:
    # So long that nobody takes its place: this is about what its silence costs the others.
    nodes = own_cluster(extra_args=("--cluster-node-timeout", "60000"))
    async with routed(nodes, ns) as made:
        victim = nodes.primary_of(made.parts[0].slot)
        mine = [part for part in made.parts if nodes.primary_of(part.slot) is victim]
        others = [part for part in made.parts if part not in mine]
        store = AsyncStore(settings_from_url(nodes.url, deadline_s=1.0), ns)
        await store.open()
        await store.query_all([partition_facts(part) for part in made.parts])
        victim.pause()
        stuck = [asyncio.create_task(store.call(new_job(mine[0], 1))) for _ in range(4)]
        slowest_s = 0.0
        while not any(task.done() for task in stuck):
            for part in others:
                asked = time.monotonic()
                await store.call(new_job(part, 1))
                if any(task.done() for task in stuck):
                    break  # now it is known to be silent, and the map is asked for: as below
                slowest_s = max(slowest_s, time.monotonic() - asked)
            await asyncio.sleep(0.01)
        ends = await asyncio.gather(*stuck, return_exceptions=True)
        assert all(isinstance(end, StoreUnavailable) for end in ends), ends
        assert slowest_s < 0.5
        for _ in range(3):  # the map is asked for anew each time, and once from the frozen one
            with pytest.raises(StoreUnavailable):
                await store.call(new_job(mine[0], 1), deadline_s=0.1)
            asked = time.monotonic()
            await store.call(new_job(others[0], 1))
            slowest_s = max(slowest_s, time.monotonic() - asked)
        assert slowest_s < 1.5
        victim.resume()
        await store.call(new_job(mine[0], 1), deadline_s=10)
        await store.aclose()
