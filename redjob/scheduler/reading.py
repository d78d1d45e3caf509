"""Many reads in one pipeline, of which a damaged key spoils only its own."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TypeVar

from redjob.calls.reads import Query
from redjob.errors import ScriptFailed
from redjob.store.aio import AsyncStore

log = logging.getLogger("redjob.scheduler")
T = TypeVar("T")


async def read_each(store: AsyncStore, queries: Sequence[Query[T]]) -> list[T | None]:
    """Read all in one try; None stands for a read that the server refuses. Raises StoreUnavailable."""
    try:
        return list(await store.query_all(queries, deadline_s=0.0))
    except ScriptFailed:
        return [await _read_one(store, query) for query in queries]


async def _read_one(store: AsyncStore, query: Query[T]) -> T | None:
    try:
        return await store.query(query, deadline_s=0.0)
    except ScriptFailed as exc:
        index = query.part.index if query.part else -1
        log.error("damaged_key partition=%d reason=%s", index, exc.reason)
        return None
