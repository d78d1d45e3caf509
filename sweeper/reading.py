"""Reads that one damaged key, or a hundred huge records, cannot turn against the sweep; under its parts."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from redjob.calls.reads import Query, records
from redjob.errors import ScriptFailed
from redjob.keys import PartitionKeys
from redjob.store.aio import AsyncStore

log = logging.getLogger("redjob.sweeper")

T = TypeVar("T")
BATCH_BYTES = 1 << 20  # of records that one script reads, or one reply holds


class Outages:
    """Says each trouble once when it begins and once when it is over."""

    def __init__(self) -> None:
        self._open: set[str] = set()

    def begin(self, what: str, reason: object) -> None:
        """Log a trouble, unless it is known already."""
        if what not in self._open:
            self._open.add(what)
            log.warning("sweep_trouble what=%s reason=%s", what, reason)

    def end(self, what: str) -> None:
        """Log that a trouble is over, if there was one."""
        if what in self._open:
            self._open.remove(what)
            log.info("sweep_recovered what=%s", what)


@contextmanager
def spared(outages: Outages, part: PartitionKeys, queue: str = "") -> Generator[None]:
    """Let a key of the wrong type stop no more of the sweep than what stands in this block."""
    try:
        yield
    except ScriptFailed as exc:
        outages.begin(f"damaged_key partition={part.index} queue={queue}", exc.reason)


async def read_each(
    store: AsyncStore, queries: Sequence[Query[T]], outages: Outages
) -> list[T | None]:
    """Send reads in one pipeline; None where the server refused one (a key of the wrong type).

    Raises StoreUnavailable.
    """
    replies: list[T | None] = []
    try:
        found: list[T] = await store.query_all(queries)
        replies.extend(found)
    except ScriptFailed:
        for query in queries:
            one: T | None = await _read_one(store, query, outages)
            replies.append(one)
    return replies


async def _read_one(store: AsyncStore, query: Query[T], outages: Outages) -> T | None:
    what = f"damaged_key partition={query.part.index if query.part else ''}"
    try:
        result: T = await store.query(query)
    except ScriptFailed as exc:
        outages.begin(what, exc.reason)
        return None
    return result


def chunks(sizes: Sequence[int], limit: int) -> Iterator[slice]:
    """Split a list of records by their sizes: at most `limit` and BATCH_BYTES each, at least one."""
    start = total = 0
    for index, size in enumerate(sizes):
        if index > start and (total + size > BATCH_BYTES or index - start >= limit):
            yield slice(start, index)
            start, total = index, 0
        total += size
    if start < len(sizes):
        yield slice(start, len(sizes))


async def read_records(
    store: AsyncStore, part: PartitionKeys, ids: Sequence[str], sizes: Sequence[int]
) -> AsyncIterator[tuple[str, bytes | None]]:
    """Read records a chunk at a time, so that huge payloads never pile up here. Raises StoreUnavailable."""
    for chunk in chunks(sizes, len(ids)):
        docs = await store.query(records(part, ids[chunk]))
        for job_id, doc in zip(ids[chunk], docs, strict=True):
            yield job_id, doc
