"""A namespace on a cluster of the test's own, and every way in which a store sends something there."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from redjob.calls import jobs
from redjob.calls.overview import partition_facts
from redjob.calls.reads import Query
from redjob.codec import encode_record, home_of
from redjob.errors import StoreUnavailable
from redjob.ids import new_id, new_token
from redjob.model import Record
from redjob.store.aio import AsyncStore
from redjob.store.settings import settings_from_url
from redjob.store.sync import SyncStore
from tests.support.opened import Opened

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine

    from redjob.calls.call import Call
    from redjob.keys import PartitionKeys
    from tests.support.cluster import ClusterNodes
    from tests.support.cluster_node import ClusterNode

QUEUE = "q"


def new_job(part: PartitionKeys, now_ms: int) -> Call[jobs.Enqueued]:
    """A call that enqueues one job in a partition."""
    record = Record(
        home=home_of(now_ms),
        created=now_ms,
        task="task",
        queue=QUEUE,
        payload=msgspec.Raw(b"{}"),
    )
    # Any id will do for the scripts: a partition is named by the call, not looked up.
    new = jobs.NewJob(
        new_id(now_ms, part.slot, int(new_token(), 16) >> 4), 0, encode_record(record)
    )
    return jobs.enqueue(part, QUEUE, "default", 5, [new], new_token())


def value_at(part: PartitionKeys, name: str) -> Query[bytes | None]:
    """Read a plain string of a partition."""
    return Query(part, [("GET", f"{part.base}{name}")], lambda raw: raw[0])


class Routed:
    """Stores of both kinds that know where everything was when they were made."""

    def __init__(self, nodes: ClusterNodes, opened: Opened, ns: str, deadline_s: float) -> None:
        settings = settings_from_url(nodes.url, deadline_s=deadline_s)
        self.nodes = nodes
        self.opened = opened
        self.parts = opened.keys.parts
        self.sync = SyncStore(settings, ns)
        self.store = AsyncStore(settings, ns)
        self._bells = [self.store.dedicated(part) for part in self.parts]

    async def warm(self) -> None:
        """Connect to every primary, and let the scripts be known there."""
        await self.store.open()
        assert self.sync.keys.partitions == len(self.parts)
        for part in self.parts:
            await self._call(part)
            await asyncio.to_thread(self._sync_call, part)

    def other_than(self, node: ClusterNode) -> ClusterNode:
        """A primary that is not this one."""
        return next(other for other in self.nodes.primaries() if other is not node)

    @property
    def ways(self) -> dict[str, Callable[[PartitionKeys], Coroutine[Any, Any, None]]]:
        """Each way to send something to a partition; it asserts that the right answer came."""
        return {
            "call": self._call,
            "call_all": self._call_all,
            "query": self._query,
            "query_all": self._query_all,
            "block": self._block,
            "sync call": lambda part: asyncio.to_thread(self._sync_call, part),
            "sync send": lambda part: asyncio.to_thread(self._sync_send, part),
            "sync query": lambda part: asyncio.to_thread(self._sync_query, part),
            "sync block": lambda part: asyncio.to_thread(self._sync_block, part),
        }

    def count(self, part: PartitionKeys) -> int:
        """How many jobs a partition's stream holds."""
        return int(self.opened.redis.xlen(part.queue(QUEUE).stream))

    async def _call(self, part: PartitionKeys) -> None:
        assert (await self.store.call(new_job(part, self.store.now_ms()))).codes == "D"

    async def _call_all(self, part: PartitionKeys) -> None:
        calls = [new_job(part, self.store.now_ms()) for part in (part, *self.parts)]
        replies: list[Any] = list(await self.store.call_all(calls))
        assert [reply.codes for reply in replies] == ["D"] * len(calls), replies

    async def _query(self, part: PartitionKeys) -> None:
        facts = await self.store.query(partition_facts(part))
        assert facts is not None
        assert facts.state == "RUNNING"

    async def _query_all(self, part: PartitionKeys) -> None:
        found = await self.store.query_all([partition_facts(one) for one in (part, *self.parts)])
        assert [facts.state for facts in found if facts] == ["RUNNING"] * (1 + len(self.parts))

    async def _block(self, part: PartitionKeys) -> None:
        bell = part.queue("other").bell
        self.opened.redis.rpush(bell, "token")
        command = ("BLPOP", bell, 1)
        at = self._bells[part.index]
        try:
            reply = await self.store.block(at, command, 1.0)
        except StoreUnavailable:  # blocking reads are sent once: their loops come round again
            reply = await self.store.block(at, command, 1.0)
        assert reply == [bell.encode(), b"token"]

    def _sync_call(self, part: PartitionKeys) -> None:
        assert self.sync.call(new_job(part, self.sync.now_ms())).codes == "D"

    def _sync_send(self, part: PartitionKeys) -> None:
        call = new_job(part, self.sync.now_ms())
        assert self.sync.call(call, sent=self.sync.send(call)).codes == "D"

    def _sync_query(self, part: PartitionKeys) -> None:
        facts = self.sync.query(partition_facts(part))
        assert facts is not None
        assert facts.state == "RUNNING"

    def _sync_block(self, part: PartitionKeys) -> None:
        bell = part.queue("other").bell
        self.opened.redis.rpush(bell, "token")
        command = ("BLPOP", bell, 1)
        try:
            reply = self.sync.block(part, command, 1.0)
        except StoreUnavailable:
            reply = self.sync.block(part, command, 1.0)
        assert reply == [bell.encode(), b"token"]

    async def close(self) -> None:
        """Close what is open."""
        for bell in self._bells:
            bell.close()
        self.sync.close()
        await self.store.aclose()


@asynccontextmanager
async def routed(
    nodes: ClusterNodes, ns: str, *, partitions: int = 8, deadline_s: float = 20.0
) -> AsyncGenerator[Routed]:
    """Open a namespace and stores that have met every primary."""
    with Opened(nodes.url, ns, partitions=partitions) as opened:
        made = Routed(nodes, opened, ns, deadline_s)
        try:
            await made.warm()
            yield made
        finally:
            await made.close()
