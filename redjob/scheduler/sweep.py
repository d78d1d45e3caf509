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
from redjob.scheduler.fire import BATCH
from redjob.scheduler.holdings import Holdings
from redjob.scheduler.owner import PartitionOwner, Slot
from redjob.scheduler.reading import read_each
from redjob.scheduler.server_clock import ServerClock
from redjob.store.aio import AsyncStore

_RELEASED = 3 * BATCH  # jobs of one queue a sweep


class Sweep:
    """Feels pulses, hands queues with overdue jobs to the backlog, lets ready jobs out."""

    def __init__(
        self,
        store: AsyncStore,
        holdings: Holdings,
        server: ServerClock,
        config: SchedulerConfig,
        *,
        backlog: Backlog,
        counters: Counters,
    ) -> None:
        self._store = store
        self._holdings = holdings
        self._server = server
        self._config = config
        self._backlog = backlog
        self._counters = counters

    async def step(self) -> float:
        """Look at everything once. Raises StoreUnavailable."""
        owners = self._holdings.owners
        # The journal goes on while the answer is on its way: it is compared with what was known before.
        seqs = [owner.seq for owner in owners]
        now_ms = self._server.now_ms()
        reads = [pulse(owner.part, now_ms) for owner in owners]
        for owner, seq, found in zip(
            owners, seqs, await read_each(self._store, reads), strict=True
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
        return self._config.sweep_every_s

    def _judge(self, owner: PartitionOwner, seq: int, found: Pulse) -> RedjobError | None:
        index = owner.part.index
        if not found.incarnation:
            return NotReady(self._store.namespace)
        if found.epoch > owner.token.epoch or found.incarnation != owner.incarnation:
            return Fenced(index, found.epoch)
        if found.epoch < owner.token.epoch or found.seq < seq:
            return JournalForked(index)
        return None

    async def _release(self, slots: Sequence[Slot]) -> None:
        reads = [
            ready_head(
                slot.owner.part,
                slot.queue,
                depth_limit=self._config.depth_limit,
                count=_RELEASED,
            )
            for slot in slots
        ]
        asked: list[Slot] = []
        calls = []
        for slot, head in zip(slots, await read_each(self._store, reads), strict=True):
            if head is None:
                continue
            slot.has_ready = bool(head.ids)
            for ids in _batches(head):
                asked.append(slot)
                calls.append(release(slot.owner.part, slot.queue, ids, tag=new_token()))
        for slot, result in zip(asked, await self._store.call_all(calls), strict=True):
            if isinstance(result, RedjobError):
                self._holdings.refused(slot.owner, result)
            else:
                self._counters.released += result.codes.count("D")


def _batches(head: ReadyHead) -> list[list[str]]:
    ids = head.ids if head.room is None else head.ids[: head.room]
    return [ids[start : start + BATCH] for start in range(0, len(ids), BATCH)]
