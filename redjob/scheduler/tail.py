"""Tails the journals of all open partitions: what is enqueued for the near future reaches the wheel.

One blocking XREAD over all of them on a connection of its own. An entry may be read late, never
skipped: numbers and tags are chained, and a break closes the partition, to be taken over anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from redjob.calls.owner_reads import read_tails, tails_reply
from redjob.errors import JournalForked
from redjob.scheduler.counters import Counters
from redjob.scheduler.holdings import Holdings
from redjob.scheduler.owner import PartitionOwner, Slot
from redjob.store.aio import AsyncStore

_COUNT = 100  # entries of one journal a read
_BLOCK_MS = 1000


class Tail:
    """Gives each owner the entries that follow on what it has read."""

    def __init__(
        self,
        store: AsyncStore,
        holdings: Holdings,
        counters: Counters,
        *,
        add: Callable[[int, Slot, str | None], None],
    ) -> None:
        self._store = store
        self._holdings = holdings
        self._counters = counters
        self._add = add
        self._link = store.dedicated()
        self._changed = asyncio.Event()
        holdings.on_change = self._changed.set

    async def step(self) -> float:
        """Read once, or as far as another set of partitions is to be read. Raises StoreUnavailable."""
        self._changed.clear()
        owners = self._holdings.owners
        if not owners:
            await self._changed.wait()
            return 0.0
        raw = await self._read(owners)
        if raw:
            self._absorb({owner.part.journal: owner for owner in owners}, raw)
        return 0.0

    async def _read(self, owners: list[PartitionOwner]) -> Any:  # noqa: ANN401 - a raw reply
        command = read_tails(
            [(owner.part, owner.seq) for owner in owners], count=_COUNT, block_ms=_BLOCK_MS
        )
        reading = asyncio.ensure_future(self._store.block(self._link, command, _BLOCK_MS / 1000))
        changing = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait([reading, changing], return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() else None
        finally:
            changing.cancel()
            if not reading.done():
                reading.cancel()
            await asyncio.gather(reading, changing, return_exceptions=True)

    def _absorb(self, owners: dict[str, PartitionOwner], raw: Any) -> None:  # noqa: ANN401 - as above
        now = self._store.clock.monotonic()
        for key, entries in tails_reply(raw):
            owner = owners[key]
            if not owner.is_open:
                continue
            self._counters.journal_entries += len(entries)
            try:
                owner.absorb(entries, self._add, now)
            except JournalForked as exc:
                self._holdings.refused(owner, exc)
