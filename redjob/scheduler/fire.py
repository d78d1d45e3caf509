"""Fires jobs: builds the calls, reads the codes, parks what is over the limit.

A call that fails needs no care: the script removes nothing that it has not moved, so the jobs are
still in due and the sweep finds them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from redjob.calls.call import Call
from redjob.calls.owner import Fired, Parked, fire, park
from redjob.calls.owner_reads import Order, order_of
from redjob.calls.reads import Due, records
from redjob.clock import Clock
from redjob.errors import RedjobError
from redjob.ids import new_token
from redjob.scheduler.counters import Counters
from redjob.scheduler.exchange import Exchange
from redjob.scheduler.holdings import Holdings
from redjob.scheduler.owner import Slot
from redjob.scheduler.server_clock import ServerClock

log = logging.getLogger("redjob.scheduler")

BATCH = 160  # jobs a call: 2 ms of script at 12 µs a job
_REST_S = 1.0


class Batch(NamedTuple):
    """Jobs of one queue for one call, with the times at which they are due."""

    slot: Slot
    jobs: Sequence[Due]


class Firer:
    """Sends batches; what is early goes back by `put_back`."""

    def __init__(
        self, exchange: Exchange, holdings: Holdings, server: ServerClock, counters: Counters
    ) -> None:
        self.put_back: Callable[[int, Slot, str | None], None] = lambda _at, _slot, _id: None
        self._exchange = exchange
        self._clock: Clock = exchange.clock
        self._holdings = holdings
        self._server = server
        self._counters = counters

    async def fire(self, batches: Sequence[Batch], *, on_time: bool) -> None:
        """Send batches in one pipeline, and a second one for those that must be parked.

        Raises StoreUnavailable.
        """
        # A queue that was full a moment ago: no use in asking for what will be refused.
        full = [batch for batch in batches if batch.slot.full]
        batches = [batch for batch in batches if not batch.slot.full]
        calls = [
            fire(slot.owner.part, slot.queue, [job.id for job in jobs], tag=new_token())
            for slot, jobs in batches
        ]
        sent = self._clock.monotonic()
        results = await self._exchange.call_all(calls)
        received = self._clock.monotonic()
        for batch, result in zip(batches, results, strict=True):
            if isinstance(result, RedjobError):
                self._holdings.refused(batch.slot.owner, result)
                continue
            self._server.learn(result.at.now_ms, sent=sent, received=received)
            over = self._settle(batch, result, on_time=on_time)
            if over:
                batch.slot.full = True
                full.append(Batch(batch.slot, over))
        if full:
            await self._park(full, on_time=on_time)

    async def _park(self, batches: Sequence[Batch], *, on_time: bool) -> None:
        reads = [records(slot.owner.part, [job.id for job in jobs]) for slot, jobs in batches]
        calls: list[Call[Fired]] = []
        for (slot, jobs), docs in zip(batches, await self._exchange.read_each(reads), strict=True):
            orders = [order_of(doc) if doc else Order() for doc in docs or [None] * len(jobs)]
            parked = [
                Parked(job.id, job.run_at_ms, order.priority, order.tenant)
                for job, order in zip(jobs, orders, strict=True)
            ]
            calls.append(park(slot.owner.part, slot.queue, parked, tag=new_token()))
        results = await self._exchange.call_all(calls)
        for batch, result in zip(batches, results, strict=True):
            if isinstance(result, RedjobError):
                self._holdings.refused(batch.slot.owner, result)
                continue
            parked_now = result.codes.count("R")
            self._counters.parked += parked_now
            batch.slot.full = parked_now > 0
            batch.slot.has_ready = batch.slot.has_ready or parked_now > 0
            self._settle(batch, result, on_time=on_time)

    def _settle(self, batch: Batch, fired: Fired, *, on_time: bool) -> list[Due]:
        """Count what happened to each job; return those that found the queue full."""
        codes = fired.codes
        moved = codes.count("D")
        self._counters.fired += moved
        if on_time:
            observe, now_ms = self._counters.lateness.observe, fired.at.now_ms
            for job, code in zip(batch.jobs, codes, strict=True):
                if code == "D":
                    observe(now_ms - job.run_at_ms)
        else:
            self._counters.overdue += moved
        if moved == len(codes):
            return []
        for job, code in zip(batch.jobs, codes, strict=True):
            self._account(batch.slot, job, code, fired.at.now_ms)
        return [job for job, code in zip(batch.jobs, codes, strict=True) if code == "F"]

    def _account(self, slot: Slot, job: Due, code: str, now_ms: int) -> None:
        if code in "AC":
            self._counters.absent += 1
        elif code == "E":
            self._counters.early += 1
            # Else it was given a later time, which the journal or a peek brings.
            if now_ms < job.run_at_ms:
                self.put_back(job.run_at_ms, slot, job.id)
        elif code == "N":
            report_lost(slot, job.id, self._counters)
        elif code == "B":
            if self._clock.monotonic() >= slot.rests_until:
                log.error("damaged_key partition=%d queue=%s", slot.owner.part.index, slot.queue)
            slot.rests_until = self._clock.monotonic() + _REST_S


def report_lost(slot: Slot, job_id: str, counters: Counters) -> None:
    """Tell, once, of a job that has a place and no record; the sweeper deals with it."""
    if job_id not in slot.lost:
        slot.lost.add(job_id)
        counters.lost += 1
        index = slot.owner.part.index
        log.error("no_record job=%s partition=%d queue=%s", job_id, index, slot.queue)
