"""The store as this node uses it: one try at a time, many things in one pipeline.

A loop that comes round again needs no retries, and one damaged key must not stop the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from redjob.calls.call import Call
from redjob.calls.reads import Query
from redjob.clock import Clock
from redjob.errors import RedjobError, ScriptFailed
from redjob.scheduler.outage import Outage
from redjob.store.aio import AsyncStore

T = TypeVar("T")


class Exchange:
    """Reads and calls; each raises StoreUnavailable when Redis gives no usable answer."""

    def __init__(self, store: AsyncStore, outage: Outage) -> None:
        self.store = store
        self.clock: Clock = store.clock
        self._outage = outage

    async def read_each(self, queries: Sequence[Query[T]]) -> list[T | None]:
        """Read all in one pipeline; None stands for a read that the server refuses."""
        try:
            return list(await self.store.query_all(queries, deadline_s=0.0))
        except ScriptFailed:
            return [await self._read_one(query) for query in queries]

    async def call_all(self, calls: Sequence[Call[T]]) -> list[T | RedjobError]:
        """Send calls in one pipeline; a refusal stands in its call's place."""
        return await self.store.call_all(calls)

    async def _read_one(self, query: Query[T]) -> T | None:
        try:
            return await self.store.query(query, deadline_s=0.0)
        except ScriptFailed as exc:
            index = query.part.index if query.part else -1
            self._outage.say(f"damaged_key partition={index}", exc.reason)
            return None
