"""Slots that move, primaries that die, nodes that are all elsewhere: the stores find what they look for."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from redjob.calls.overview import partition_facts
from redjob.errors import SlotMoving, StoreUnavailable
from redjob.store.aio import AsyncStore
from redjob.store.settings import settings_from_url
from redjob.store.sync import SyncStore
from tests.support.opened import Opened
from tests.support.proxy import Proxy
from tests.support.routed import new_job, routed, value_at

if TYPE_CHECKING:
    from tests.support.servers import OwnClusterFactory

pytestmark = pytest.mark.anyio


async def test_a_slot_that_has_moved_is_found_by_every_way_of_asking(
    own_cluster: OwnClusterFactory, ns: str
) -> None:
    nodes = own_cluster()
    async with routed(nodes, ns) as made:
        part = made.parts[3]
        for name, way in made.ways.items():
            source = nodes.primary_of(part.slot)
            target = made.other_than(source)
            nodes.slot_move(part.slot, target).begin().finish()
            nodes.reset_calls()
            await way(part)
            calls = nodes.calls()[target.address]
            assert calls.get("evalsha", calls.get("hmget", calls.get("blpop", 0))), name
        address = made.store.server_of(part)
        assert address is not None
        assert str(address) == nodes.primary_of(part.slot).address


async def test_keys_that_have_moved_ahead_of_their_slot_are_read_where_they_are(
    own_cluster: OwnClusterFactory, ns: str
) -> None:
    nodes = own_cluster()
    async with routed(nodes, ns) as made:
        part = made.parts[0]
        made.opened.redis.set(f"{part.base}x", "here")
        move = nodes.slot_move(part.slot, made.other_than(nodes.primary_of(part.slot))).begin()
        move.migrate(f"{part.base}x", part.meta)
        query = value_at(part, "x")
        assert await made.store.query(query) == b"here"
        assert await made.store.query_all([query, value_at(made.parts[1], "x"), query]) == [
            b"here", None, b"here",
        ]  # fmt: skip
        assert await asyncio.to_thread(made.sync.query, query) == b"here"
        for name in ("query", "query_all", "sync query"):
            await made.ways[name](part)
        assert nodes.primary_of(part.slot) is move.source, "nobody may believe that it has moved"
        move.finish()
        for way in made.ways.values():
            await way(part)


async def test_a_call_waits_until_its_slot_has_moved_and_is_carried_out_once(
    own_cluster: OwnClusterFactory, ns: str
) -> None:
    nodes = own_cluster()
    async with routed(nodes, ns) as made:
        part = made.parts[0]
        before = made.count(part)
        move = nodes.slot_move(part.slot, made.other_than(nodes.primary_of(part.slot))).begin()
        move.migrate(*move.keys()[::2])
        with pytest.raises(SlotMoving) as caught:
            await made.store.call(new_job(part, 1), deadline_s=0.2)
        assert caught.value.outcome == "refused"
        with pytest.raises(SlotMoving):
            await asyncio.to_thread(made.sync.call, new_job(part, 1), deadline_s=0.2)
        (refused,) = await made.store.call_all([new_job(part, 1)])
        assert isinstance(refused, SlotMoving)

        waiting = [
            asyncio.create_task(made.store.call(new_job(part, 1))),
            asyncio.create_task(asyncio.to_thread(made.sync.call, new_job(part, 1))),
        ]
        await made.ways["call"](made.parts[4])  # the others go on meanwhile
        assert not any(task.done() for task in waiting)
        move.finish()
        assert [(await task).codes for task in waiting] == ["D", "D"]
        assert made.count(part) == before + 2


async def test_a_slot_that_nobody_serves_is_waited_for(
    own_cluster: OwnClusterFactory, ns: str
) -> None:
    nodes = own_cluster()
    async with routed(nodes, ns) as made:
        part = made.parts[0]
        owner = nodes.primary_of(part.slot)
        for node in nodes.primaries():
            node.command("CLUSTER", "DELSLOTS", part.slot)
        for _ in range(2):  # by the old map, and by the new one, which has a hole
            with pytest.raises(StoreUnavailable) as caught:
                await made.store.call(new_job(part, 1), deadline_s=0.3)
            assert caught.value.outcome == "refused"
            with pytest.raises(StoreUnavailable):
                await asyncio.to_thread(made.sync.call, new_job(part, 1), deadline_s=0.3)
        await made.ways["call"](made.parts[4])
        mixed = await made.store.call_all([new_job(one, 1) for one in (part, made.parts[4])])
        assert isinstance(mixed[0], StoreUnavailable)
        assert not isinstance(mixed[1], Exception), mixed
        calls = [asyncio.create_task(made.ways[way](part)) for way in ("call", "sync call")]
        owner.command("CLUSTER", "ADDSLOTS", part.slot)
        await asyncio.gather(*calls)


@pytest.mark.solo
async def test_calls_come_back_after_a_primary_is_killed(
    own_cluster: OwnClusterFactory, ns: str
) -> None:
    nodes = own_cluster()
    async with routed(nodes, ns) as made:
        part = made.parts[0]
        victim = nodes.primary_of(part.slot)
        others = [one for one in made.parts if nodes.primary_of(one.slot) is not victim]
        for replica in nodes.replicas_of(victim):
            assert victim.command("WAIT", 1, 5000) == 1, replica
        calls = [asyncio.create_task(made.ways[way](part)) for way in ("call", "sync call")]
        await asyncio.gather(*calls)
        victim.kill()
        started = time.monotonic()
        calls = [
            asyncio.create_task(made.ways[way](part))
            for way in ("call", "query", "query_all", "sync call", "sync query", "sync send")
        ]
        slowest_s = 0.0
        while not all(call.done() for call in calls):
            asked = time.monotonic()
            await made.store.call(new_job(others[0], 1))
            await asyncio.to_thread(made.sync.call, new_job(others[0], 1))
            slowest_s = max(slowest_s, time.monotonic() - asked)
            await asyncio.sleep(0.02)
        await asyncio.gather(*calls)
        assert time.monotonic() - started < 15
        assert slowest_s < 1, "a primary that is away is no matter of the others"
        assert str(made.store.server_of(part)) == nodes.primary_of(part.slot).address
        assert victim.address not in map(str, made.store.servers)
        for way in made.ways.values():
            await way(part)


async def test_a_primary_that_hands_over_loses_no_call(
    own_cluster: OwnClusterFactory, ns: str
) -> None:
    nodes = own_cluster()
    async with routed(nodes, ns) as made:
        part = made.parts[0]
        before = made.count(part)
        done = asyncio.Event()

        async def go_on() -> int:
            sent = 0
            while not done.is_set():
                await made.ways["call"](part)
                await made.ways["sync call"](part)
                sent += 2
            return sent

        going = asyncio.create_task(go_on())
        await asyncio.to_thread(nodes.fail_over, nodes.primary_of(part.slot))
        await made.ways["query"](part)
        done.set()
        sent = await going
        await made.ways["call"](part)
        assert made.count(part) == before + sent + 1


async def test_when_all_nodes_are_elsewhere_the_names_of_the_url_are_asked_again(
    own_cluster: OwnClusterFactory, ns: str
) -> None:
    old = own_cluster()
    # The name stays and leads to other servers, as a DNS entry does: a forwarded port.
    with Proxy(old.nodes[0].port) as name:
        url = f"redis+cluster://127.0.0.1:{name.port}"
        settings = settings_from_url(url, deadline_s=20)
        store, sync = AsyncStore(settings, ns), SyncStore(settings, ns)
        with Opened(old.url, ns, partitions=4) as opened:
            part = opened.keys.parts[0]
            assert await store.query(partition_facts(part))
            assert await asyncio.to_thread(sync.query, partition_facts(part))
            assert name.port not in {address.port for address in store.servers}
        new = own_cluster()
        name.lead_to(new.nodes[0].port)
        old.stop()
        with Opened(new.url, ns, partitions=4):
            assert await store.query(partition_facts(part))
            assert await asyncio.to_thread(sync.query, partition_facts(part))
            assert {address.port for address in store.servers} == {
                node.port for node in new.primaries()
            }
        sync.close()
        await store.aclose()
