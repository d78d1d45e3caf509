"""Takes over partitions that are held and not open: position, fence, wheel, in three pipelines.

The fence's reply is the position from which the journal is tailed, and the fill begins after it: a
job that is enqueued in between is in both, none is in neither.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from redjob.calls.owner import Fence, Installed, fence
from redjob.calls.reads import JournalPosition, journal_position
from redjob.config import SchedulerConfig
from redjob.errors import Fenced, RedjobError
from redjob.ids import new_token
from redjob.keys import PartitionKeys
from redjob.scheduler.counters import Counters
from redjob.scheduler.holdings import Holdings
from redjob.scheduler.outage import Outage
from redjob.scheduler.owner import Known, PartitionOwner
from redjob.store.aio import AsyncStore

log = logging.getLogger("redjob.scheduler")

_AGAIN_S = 0.05  # between two tries to take what could not be taken


class Takeover:
    """Opens what the lease holds; `fill` puts what is due soon into the wheel."""

    def __init__(
        self,
        store: AsyncStore,
        holdings: Holdings,
        outage: Outage,
        config: SchedulerConfig,
        *,
        counters: Counters,
        fill: Callable[[Sequence[PartitionOwner]], Awaitable[None]],
    ) -> None:
        self._store = store
        self._holdings = holdings
        self._outage = outage
        self._config = config
        self._counters = counters
        self._fill = fill

    async def step(self) -> float:
        """Wait for work, and take over all that is missing. Raises StoreUnavailable."""
        if not self._holdings.missing:
            self._holdings.work.clear()
            await self._holdings.work.wait()
        parts = [self._store.keys.parts[index] for index in sorted(self._holdings.missing)]
        if parts:
            await self._take(parts)
        return _AGAIN_S if self._holdings.missing else 0.0

    async def _take(self, parts: Sequence[PartitionKeys]) -> None:
        places = await self._store.query_all(
            [journal_position(part) for part in parts], deadline_s=0.0
        )
        tokens = [Fence(place.epoch + 1 if place else 1, new_token()) for place in places]
        calls = [
            fence(
                part,
                token,
                incarnation=new_token(),
                depth_limit=self._config.depth_limit,
                grace_ms=self._config.grace_ms,
            )
            for part, token in zip(parts, tokens, strict=True)
        ]
        owners: list[PartitionOwner] = []
        answers = await self._store.call_all(calls)
        self._outage.worked()
        for part, token, place, answer in zip(parts, tokens, places, answers, strict=True):
            if isinstance(answer, Fenced):  # somebody was quicker; the next beat tells who
                log.info("fenced partition=%d epoch=%d", part.index, answer.epoch)
            elif isinstance(answer, RedjobError):
                self._outage.failed(answer)
            else:
                owner = PartitionOwner(part, token, answer)
                self._compare(part.index, place, answer)
                if self._holdings.open(owner):
                    owners.append(owner)
        if owners:
            self._counters.takeovers += len(owners)
            log.info("partitions_opened count=%d epoch=%d", len(owners), owners[0].token.epoch)
            await self._fill(owners)

    def _compare(self, index: int, place: JournalPosition | None, now: Installed) -> None:
        """Tell what Redis has lost since this process worked on the partition."""
        known = self._holdings.known.pop(index, None)
        if known is None:
            return
        if known.incarnation != now.incarnation:
            self._counters.emptied += 1
            log.error(
                "redis_emptied partition=%d incarnation=%s known_jobs=%d cause=%s",
                index,
                known.incarnation,
                known.jobs,
                "meta_missing" if place is None else "another_data_set",
            )
        elif now.at.seq < known.seq or (now.at.seq == known.seq and now.tag != known.tag):
            self._counters.rollbacks += 1
            _tell_rollback(index, known, now.at.seq)


def _tell_rollback(index: int, known: Known, seq: int) -> None:
    """Log the lost tail: what began in it may begin again, and what ended may have un-ended."""
    log.error("journal_rolled_back partition=%d from_seq=%d to_seq=%d", index, known.seq, seq)
    for entry in known.recent:
        if entry.seq <= seq or entry.op not in {"take", "finish", "reclaim", "heartbeat"}:
            continue
        for line in entry.lines():
            log.warning(
                "extra_start_possible job=%s attempt=%d cause=rollback op=%s",
                line.id,
                line.attempt,
                entry.op,
            )
