"""The streams of a partition: entries that consumers were given and never began, and their depth; under scan."""

from __future__ import annotations

import logging

from redjob.calls import sweep
from redjob.calls.reads import Query, queue_names
from redjob.calls.sweep_reads import (
    dispatched_count,
    entries_after,
    named_entries,
    never_begun,
    stream_facts,
)
from redjob.config import SweeperConfig
from redjob.keys import PartitionKeys
from redjob.store.aio import AsyncStore
from redjob.sweeper.reading import Outages, read_each, spared
from redjob.sweeper.swept import Swept

log = logging.getLogger("redjob.sweeper")

_PAGE = 32  # entries, each with its record


class Streams:
    """Looks at every queue's stream of a partition."""

    def __init__(self, store: AsyncStore, config: SweeperConfig, outages: Outages) -> None:
        self._store = store
        self._idle_ms = round(config.never_begun_s * 1000)
        self._batch = config.batch
        self._outages = outages

    async def never_begun(self, part: PartitionKeys) -> dict[str, set[str]]:
        """Return, per queue, the entries that a consumer has held for long without beginning them.

        Every page is read, to the end: entries of a dead consumer may lie behind any number of fresh
        ones. Raises StoreUnavailable.
        """
        names = await self._store.query(queue_names(part))
        facts = await read_each(
            self._store, [stream_facts(part, queue) for queue in names], self._outages
        )
        readable = [
            queue for queue, fact in zip(names, facts, strict=True) if fact and fact.has_group
        ]
        first = await read_each(
            self._store, [self._pending(part, queue, "") for queue in readable], self._outages
        )
        idle: dict[str, set[str]] = {}
        for queue, page in zip(readable, first, strict=True):
            idle[queue] = await self._to_the_end(part, queue, page or [])
        return idle

    async def settle(self, part: PartitionKeys, idle: dict[str, set[str]], swept: Swept) -> None:
        """Settle those of the entries that no job names any more, and mend wrong depths.

        Nobody takes from a paused queue and so settles what was cancelled in it: that is looked for.
        Raises StoreUnavailable.
        """
        names = await self._store.query(queue_names(part))
        facts = await read_each(
            self._store, [stream_facts(part, queue) for queue in names], self._outages
        )
        length = sum(fact.length for fact in facts if fact is not None)
        (named,) = await read_each(self._store, [dispatched_count(part)], self._outages)
        for queue, fact in zip(names, facts, strict=True):
            if fact is None:
                continue
            with spared(self._outages, part, queue):
                left = sorted(idle.get(queue, ()))
                if fact.paused and named is not None and length > named:
                    left = sorted({*left, *await self._unnamed(part, queue)})
                if not left and fact.length == fact.depth:
                    continue
                for start in range(0, max(1, len(left)), self._batch):
                    await self._recount(part, queue, left[start : start + self._batch], swept)

    async def _unnamed(self, part: PartitionKeys, queue: str) -> list[str]:
        """Return the entries of a queue that `dispatched` does not name."""
        unnamed: list[str] = []
        page = await self._store.query(entries_after(part, queue, "", _PAGE))
        while page:
            named = await self._store.query(named_entries(part, [job_id for _, job_id in page]))
            unnamed += [
                entry for (entry, _), name in zip(page, named, strict=True) if name != entry
            ]
            if len(page) < _PAGE:
                break
            page = await self._store.query(entries_after(part, queue, page[-1][0], _PAGE))
        return unnamed

    async def _recount(
        self, part: PartitionKeys, queue: str, entries: list[str], swept: Swept
    ) -> None:
        counted = await self._store.call(sweep.recount(part, queue, entries))
        swept.settled += counted.settled
        # An entry settled just now is no sign of damage: only the rest had been miscounted.
        if counted.before != counted.depth + counted.settled:
            swept.recounted += 1
            log.warning(
                "depth_mended partition=%d queue=%s counted=%d there=%d",
                part.index, queue, counted.before, counted.depth,
            )  # fmt: skip

    async def _to_the_end(self, part: PartitionKeys, queue: str, page: list[str]) -> set[str]:
        found = set(page)
        while len(page) == self._batch:
            page = await self._store.query(self._pending(part, queue, page[-1]))
            found.update(page)
        return found

    def _pending(self, part: PartitionKeys, queue: str, after: str) -> Query[list[str]]:
        return never_begun(part, queue, idle_ms=self._idle_ms, after=after, limit=self._batch)
