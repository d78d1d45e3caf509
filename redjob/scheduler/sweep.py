"""The sweep: what the wheel missed, and whether each partition is still what its owner knows.

One pipeline every 100 ms feels the pulse of all open partitions. It is the wheel's safety net, and
the one place where an emptied, restored or taken-over partition shows without any traffic.
"""

from __future__ import annotations

from collections.abc import Sequence

from redjob.calls.owner import release
from redjob.calls.owner_reads import Pulse, ReadyHead, pulse, ready_head
from redjob.config import SchedulerConfig
from redjob.errors import Fenced, JournalForked, NotReady, RedjobError
from redjob.ids import new_token
from redjob.scheduler.backlog import Backlog
from redjob.scheduler.counters import Counters
from redjob.scheduler.exchange import Exchange
from redjob.scheduler.fire import BATCH, report_lost
from redjob.scheduler.holdings import Holdings
from redjob.scheduler.owner import PartitionOwner, Slot
from redjob.scheduler.server_clock import ServerClock

_RELEASED = 3 * BATCH  # jobs of one queue a sweep


class Sweep:
    """Feels pulses, hands queues with overdue jobs to the backlog, lets ready jobs out."""

    def __init__(
        self,
        exchange: Exchange,
        holdings: Holdings,
        server: ServerClock,
        config: SchedulerConfig,
        *,
        backlog: Backlog,
        counters: Counters,
    ) -> None:
        self._exchange = exchange
        self._holdings = holdings
        self._server = server
        self._config = config
        self._backlog = backlog
        self._counters = counters

    async def step(self) -> float:
        """Look at everything once. Raises StoreUnavailable."""
        await self.look(self._holdings.owners)
        return self._config.sweep_every_s

    async def look(self, owners: Sequence[PartitionOwner]) -> None:
        """Judge partitions, hand on what is overdue in them and let ready jobs out."""
        # The journal goes on while the answer is on its way: it is compared with what was known before.
        seqs = [owner.seq for owner in owners]
        now_ms = self._server.now_ms()
        reads = [pulse(owner.part, now_ms) for owner in owners]
        for owner, seq, found in zip(
            owners, seqs, await self._exchange.read_each(reads), strict=True
        ):
            if found is None or not owner.is_open:
                continue
            trouble = self._judge(owner, seq, found)
            if trouble is not None:
                self._holdings.refused(owner, trouble)
                continue
            for queue in found.due:
                self._backlog.add(owner.slot(queue))
        ready = [slot for owner in owners for slot in owner.slots.values() if slot.has_ready]
        await self._release([slot for slot in ready if slot.owner.is_open])

    def _judge(self, owner: PartitionOwner, seq: int, found: Pulse) -> RedjobError | None:
        index = owner.part.index
        if not found.incarnation:
            return NotReady(self._exchange.store.namespace)
        if found.epoch > owner.token.epoch or found.incarnation != owner.incarnation:
            return Fenced(index, found.epoch)
        if found.epoch < owner.token.epoch or found.seq < seq:
            return JournalForked(index)
        return None

    async def _release(self, slots: Sequence[Slot]) -> None:
        limit = self._config.depth_limit
        reads = [
            ready_head(
                slot.owner.part, slot.queue, depth_limit=limit, count=_RELEASED + len(slot.lost)
            )
            for slot in slots
        ]
        asked: list[tuple[Slot, list[str]]] = []
        for slot, head in zip(slots, await self._exchange.read_each(reads), strict=True):
            if head is not None:
                slot.has_ready = bool(head.ids)
                asked += [(slot, ids) for ids in _batches(slot, head)]
        calls = [release(slot.owner.part, slot.queue, ids, tag=new_token()) for slot, ids in asked]
        for (slot, ids), result in zip(asked, await self._exchange.call_all(calls), strict=True):
            if isinstance(result, RedjobError):
                self._holdings.refused(slot.owner, result)
                continue
            self._counters.released += result.codes.count("D")
            for job_id, code in zip(ids, result.codes, strict=True):
                if code == "N":
                    report_lost(slot, job_id, self._counters)


def _batches(slot: Slot, head: ReadyHead) -> list[list[str]]:
    ids = [job_id for job_id in head.ids if job_id not in slot.lost][: head.room]
    return [ids[start : start + BATCH] for start in range(0, len(ids), BATCH)]
