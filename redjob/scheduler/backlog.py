"""Drains queues that have overdue jobs, page by page, as fast as the server takes them.

It has a few pipelines of its own: the server serves connections in turn, so a job that is on time
waits for one script of each, and never for the backlog.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from redjob.calls.reads import Due, peek_due
from redjob.clock import Clock
from redjob.scheduler.exchange import Exchange
from redjob.scheduler.fire import BATCH, Batch, Firer
from redjob.scheduler.outage import Outage
from redjob.scheduler.owner import Slot
from redjob.scheduler.server_clock import ServerClock

PAGE = 3 * BATCH
_WORKERS = 2  # while the server works on one pipeline, the next is made
_TOGETHER = 4  # queues a pipeline
_MOST_LOST = 10_000


class Backlog:
    """Queues that wait to be drained; each is drained by one worker at a time."""

    def __init__(
        self, exchange: Exchange, firer: Firer, server: ServerClock, outage: Outage
    ) -> None:
        self._exchange = exchange
        self._clock: Clock = exchange.clock
        self._firer = firer
        self._server = server
        self._outage = outage
        self._slots: asyncio.Queue[Slot] = asyncio.Queue()

    def add(self, slot: Slot) -> None:
        """Drain a queue, unless that is being done."""
        if slot.draining or self._clock.monotonic() < slot.rests_until:
            return
        slot.draining = True
        self._slots.put_nowait(slot)

    async def run(self) -> None:
        """Drain until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_WORKERS):
                group.create_task(self._outage.keep_going(self._step))

    async def _step(self) -> float:
        slots = [await self._slots.get()]
        while len(slots) < _TOGETHER and not self._slots.empty():
            slots.append(self._slots.get_nowait())
        slots = [slot for slot in slots if slot.owner.is_open]
        going_on: list[Slot] = []
        try:
            going_on = await self._drain(slots)
        finally:
            for slot in slots:
                slot.draining = False
        for slot in going_on:
            self.add(slot)
        return 0.0

    async def _drain(self, slots: Sequence[Slot]) -> list[Slot]:
        """Fire a page of each queue; return those whose page was full."""
        now_ms = self._server.now_ms()
        # Jobs that are lost stay at the front of due: the page reaches past them.
        limits = [PAGE + min(len(slot.lost), _MOST_LOST) for slot in slots]
        reads = [
            peek_due(slot.owner.part, slot.queue, after_ms=None, until_ms=now_ms, limit=limit)
            for slot, limit in zip(slots, limits, strict=True)
        ]
        batches: list[Batch] = []
        going_on: list[Slot] = []
        for slot, limit, page in zip(
            slots, limits, await self._exchange.read_each(reads), strict=True
        ):
            if page is None:
                continue
            batches += _batches(slot, page)
            if len(page) == limit:
                going_on.append(slot)
        await self._firer.fire(batches, on_time=False)
        return going_on


def _batches(slot: Slot, page: list[Due]) -> list[Batch]:
    if not page:  # the score in `queues` is stale: a call without ids sets it right
        return [Batch(slot, [])]
    jobs = [job for job in page if job.id not in slot.asked and job.id not in slot.lost]
    return [Batch(slot, jobs[start : start + BATCH]) for start in range(0, len(jobs), BATCH)]
