"""Keeps the wheel filled with the jobs of the next seconds; nothing is removed from Redis.

What is due in the window comes into the wheel on one of two ways: by a peek at `due`, or by the
journal when it was enqueued later. The window is moved on before the peek is sent: a job that comes
in between is then seen twice, which costs one refused id, and never by neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from redjob.calls.owner_reads import all_queues, server_time, waiting
from redjob.calls.reads import Due, Query, peek_due
from redjob.clock import Clock
from redjob.config import SchedulerConfig
from redjob.keys import PartitionKeys
from redjob.scheduler.exchange import Exchange
from redjob.scheduler.holdings import Holdings
from redjob.scheduler.owner import PartitionOwner, Slot
from redjob.scheduler.server_clock import ServerClock

PAGE = 1000
_EVERY_S = 1.0
_MOST = 50_000  # jobs in the wheel; beyond it, later ones are left to later peeks and to the sweep
_COUNTED = 32  # queues counted a partition and second


class Window:
    """Peeks ahead, a page a queue, as long as the wheel has room."""

    def __init__(
        self,
        exchange: Exchange,
        holdings: Holdings,
        server: ServerClock,
        config: SchedulerConfig,
        *,
        add: Callable[[int, Slot, str | None], None],
        size: Callable[[], int],
    ) -> None:
        self._exchange = exchange
        self._clock: Clock = exchange.clock
        self._holdings = holdings
        self._server = server
        self._config = config
        self._add = add
        self._size = size
        self._filling = asyncio.Lock()  # a takeover fills too; each starts where the other ended

    async def step(self) -> float:
        """Move all windows on, and look at what waits in ready."""
        owners = self._holdings.owners
        if owners:
            await self.read_clock(owners[0].part)
            await self.fill(owners)
        return _EVERY_S

    async def read_clock(self, part: PartitionKeys) -> None:
        """Compare the clocks. Raises StoreUnavailable."""
        sent = self._clock.monotonic()
        now_ms = await self._exchange.store.query(server_time(part), deadline_s=0.0)
        self._server.learn(now_ms, sent=sent, received=self._clock.monotonic(), exact=True)

    async def fill(self, owners: Sequence[PartitionOwner]) -> None:
        """Put into the wheel what is due in the window and not yet covered. Raises StoreUnavailable."""
        async with self._filling:
            until_ms = self._server.now_ms() + self._config.lookahead_ms
            before = [owner.window_ms for owner in owners]
            for owner in owners:
                owner.window_ms = max(owner.window_ms, until_ms)
            reads = [all_queues(owner.part) for owner in owners]
            queues = await self._exchange.read_each(reads)
            behind: list[tuple[Slot, int]] = []
            for owner, before_ms, found in zip(owners, before, queues, strict=True):
                for queue, earliest_ms in (found or {}).items():
                    slot = owner.slot(queue)
                    if earliest_ms <= owner.window_ms:
                        behind.append((slot, self._start_of(slot, before_ms)))
            while behind:
                behind = await self._peek(behind)
            await self._count(owners)

    def _start_of(self, slot: Slot, before_ms: int) -> int:
        covered_ms = before_ms if slot.covered_ms is None else slot.covered_ms
        return max(covered_ms, self._server.now_ms())  # what is due already is the sweep's

    async def _peek(self, behind: list[tuple[Slot, int]]) -> list[tuple[Slot, int]]:
        """Put a page of each queue into the wheel; return those that go on, and from which time."""
        reads: list[Query[list[Due]]] = []
        for slot, after_ms in behind:
            slot.covered_ms = None  # from here on the journal counts, as with `window_ms`
            part, until_ms = slot.owner.part, slot.owner.window_ms
            reads.append(
                peek_due(part, slot.queue, after_ms=after_ms, until_ms=until_ms, limit=PAGE)
            )
        following: list[tuple[Slot, int]] = []
        for (slot, _), page in zip(behind, await self._exchange.read_each(reads), strict=True):
            for job_id, run_at_ms in page or ():
                self._add(run_at_ms, slot, job_id)
            if page and len(page) >= PAGE:
                last_ms = slot.covered_ms = page[-1].run_at_ms
                # more jobs of that very millisecond may be left: no id, a look at the queue by then
                self._add(last_ms, slot, None)
                if self._size() < _MOST:
                    following.append((slot, last_ms))
        return following

    async def _count(self, owners: Sequence[PartitionOwner]) -> None:
        """Count some queues of each partition, another lot each time."""
        slots: list[Slot] = []
        for owner in owners:
            some = list(owner.slots)[:_COUNTED]
            for queue in some:  # to the end of the line
                owner.slots[queue] = owner.slots.pop(queue)
            slots += (owner.slots[queue] for queue in some)
        reads = [waiting(slot.owner.part, slot.queue) for slot in slots]
        for slot, count in zip(slots, await self._exchange.read_each(reads), strict=True):
            if count is not None:
                slot.due = count.due
                slot.has_ready = slot.has_ready or count.ready > 0
