"""Reads the journals of all open partitions as they grow: what was enqueued for soon goes to the wheel.

An entry may be read late, never skipped: each is checked to follow on the one before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any

from redjob.calls.owner_reads import read_tails
from redjob.clock import Clock
from redjob.codec import decode_entry
from redjob.errors import JournalForked
from redjob.scheduler.counters import Counters
from redjob.scheduler.holdings import Holdings
from redjob.scheduler.outage import Outage
from redjob.scheduler.owner import PartitionOwner, Slot
from redjob.store.aio import AsyncStore

_BLOCK_MS = 1000
_COUNT = 200  # entries a journal and read
# After entries, a pause: a read answers with what is there at its first moment, often one entry, and
# costs as much as one with a hundred. It bounds how late a job for the next few ms is heard of.
_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.02  # where each journal is read by itself, the pauses are longer


class Tails:
    """Reads the journals of all open partitions: together where one read may, else each by itself."""

    def __init__(
        self,
        store: AsyncStore,
        holdings: Holdings,
        outage: Outage,
        counters: Counters,
        *,
        add: Callable[[int, Slot, str | None], None],
    ) -> None:
        self._holdings = holdings
        self._make = partial(Tail, store, holdings, outage, counters, add=add)
        self._together = self._make(None) if store.is_one_server else None
        self._tails: dict[int, tuple[Tail, asyncio.Task[None]]] = {}
        self._changed = asyncio.Event()

    def follow_change(self) -> None:
        """Read other journals from now on: partitions were opened or closed."""
        self._changed.set()
        if self._together is not None:
            self._together.follow_change()

    async def run(self) -> None:
        """Read until cancelled."""
        if self._together is not None:
            await self._together.run()
        try:
            while True:
                self._changed.clear()
                self._follow(self._holdings.opened.keys())
                await self._changed.wait()
        finally:
            self._follow(set())

    def _follow(self, opened: AbstractSet[int]) -> None:
        for index in self._tails.keys() - opened:
            self._tails.pop(index)[1].cancel()
        for tail, _ in self._tails.values():
            tail.follow_change()  # it may have been closed and opened again
        for index in opened - self._tails.keys():
            tail = self._make(index)
            task = asyncio.create_task(tail.run(), name=f"tail-{index}")
            self._tails[index] = (tail, task)


class Tail:
    """A blocking read over the journals of all open partitions, or of one; on its own connection."""

    def __init__(
        self,
        store: AsyncStore,
        holdings: Holdings,
        outage: Outage,
        counters: Counters,
        index: int | None,
        *,
        add: Callable[[int, Slot, str | None], None],
    ) -> None:
        self._store = store
        self._clock: Clock = store.clock
        self._holdings = holdings
        self._outage = outage
        self._counters = counters
        self._index = index
        self._add = add
        self._at = store.dedicated(None if index is None else store.keys.parts[index])
        self._changed = asyncio.Event()
        self._reading: asyncio.Task[Any] | None = None

    @property
    def _owners(self) -> list[PartitionOwner]:
        if self._index is None:
            return self._holdings.owners
        owner = self._holdings.opened.get(self._index)
        return [] if owner is None else [owner]

    @property
    def _pause_s(self) -> float:
        apart = 1 if self._index is None else len(self._holdings.opened)
        return min(_LONGEST_PAUSE_S, _PAUSE_S * apart)

    def follow_change(self) -> None:
        """Read other journals from now on: partitions were opened or closed."""
        self._changed.set()
        if self._reading is not None:
            self._reading.cancel()

    async def run(self) -> None:
        """Read until cancelled."""
        try:
            await self._outage.keep_going(self.step)
        finally:
            self._at.close()

    async def step(self) -> float:
        """Wait for entries, once. Raises StoreUnavailable."""
        self._changed.clear()
        owners = {owner.part.journal: owner for owner in self._owners}
        if not owners:
            await self._changed.wait()
            return 0.0
        positions = [(owner.part, owner.seq) for owner in owners.values()]
        command = read_tails(positions, count=_COUNT, block_ms=_BLOCK_MS)
        self._reading = asyncio.create_task(self._store.block(self._at, command, _BLOCK_MS / 1000))
        try:
            found = await self._reading
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return 0.0  # only the read was cancelled, by `follow_change`
        finally:
            self._reading = None
        for key, entries in found or ():
            self._take(owners[key.decode()], entries)
        return self._pause_s if found else 0.0

    def _take(self, owner: PartitionOwner, raw: list[Any]) -> None:
        if not owner.is_open:
            return
        try:
            entries = [decode_entry(entry, fields) for entry, fields in raw]
            owner.absorb(entries, self._add, self._clock.monotonic())
        except JournalForked as exc:
            self._holdings.refused(owner, exc)
        except (KeyError, ValueError):  # not ours: nothing that comes behind it can be trusted
            self._holdings.refused(owner, JournalForked(owner.part.index))
        self._counters.journal_entries += len(raw)
