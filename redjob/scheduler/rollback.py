"""Tells what Redis has lost, when a partition that this process had open is taken again.

A server that crashed or failed over may come back without the newest entries of a journal. The jobs
are where the rest of the journal says; what this process had read of the lost part explains, in the
log, why some of them start once more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

from redjob.calls.owner import Installed
from redjob.calls.reads import read_journal
from redjob.codec import JournalEntry
from redjob.keys import PartitionKeys
from redjob.scheduler.counters import Counters
from redjob.scheduler.owner import Known
from redjob.store.aio import AsyncStore

log = logging.getLogger("redjob.scheduler")

_BEGUN = frozenset({"take", "begin", "heartbeat", "finish", "reclaim"})
_ASKED = frozenset({"cancel", "reschedule", "replay", "purge"})
_YIELD_EVERY = 500


def went_back_to(known: Known, installed: Installed, tags: Mapping[int, str]) -> int | None:
    """Return the last seq that Redis shares with what was read, None if it has all of it.

    `tags` are those that Redis has now at the seqs of `known.recent`. An entry that was trimmed
    proves nothing: somebody else owned the partition meanwhile.
    """
    differs = any(tags.get(entry.seq, entry.tag) != entry.tag for entry in known.recent)
    if installed.at.seq >= known.seq and not differs:
        tag_now = installed.tag if installed.at.seq == known.seq else tags.get(known.seq)
        if tag_now is None or tag_now == known.tag:
            return None
    # Up to the first that differs: a call that was repeated has its old tag, perhaps at its old seq.
    shared = list(takewhile(lambda entry: tags.get(entry.seq) == entry.tag, known.recent))
    if shared:
        return shared[-1].seq
    first = known.recent[0].seq if known.recent else known.seq
    return min(installed.at.seq, first - 1)


def lost_starts(lost: Sequence[JournalEntry]) -> Iterator[tuple[str, int]]:
    """Yield (job, attempt) of each start or end of an attempt that the lost entries told of."""
    seen: set[tuple[str, int]] = set()
    for entry in lost:
        if entry.op in _BEGUN:
            for line in entry.lines():
                start = (line.id, line.attempt)
                if line.attempt > 0 and start not in seen:
                    seen.add(start)
                    yield start


class Rollback:
    """Compares and reports."""

    def __init__(self, store: AsyncStore, counters: Counters) -> None:
        self._store = store
        self._counters = counters

    async def report(self, part: PartitionKeys, known: Known, installed: Installed) -> None:
        """Log what is missing from a partition that was just taken again. Raises StoreUnavailable."""
        if known.incarnation != installed.incarnation:
            self._counters.emptied += 1
            log.error(
                "redis_emptied partition=%d incarnation=%s known_jobs=%d",
                part.index, known.incarnation, known.jobs,
            )  # fmt: skip
            return
        tags: dict[int, str] = {}
        if known.recent:
            before = known.recent[0].seq - 1
            found = await self._store.query(
                read_journal(part, before, len(known.recent)), deadline_s=0.0
            )
            tags = {entry.seq: entry.tag for entry in found}
        to_seq = went_back_to(known, installed, tags)
        if to_seq is None:
            return
        self._counters.rollbacks += 1
        log.error(
            "journal_rolled_back partition=%d from_seq=%d to_seq=%d", part.index, known.seq, to_seq
        )
        lost = [entry for entry in known.recent if entry.seq > to_seq]
        for count, (job_id, attempt) in enumerate(lost_starts(lost), 1):
            log.warning("extra_start_possible job=%s attempt=%d cause=rollback", job_id, attempt)
            if count % _YIELD_EVERY == 0:  # firing goes on meanwhile
                await asyncio.sleep(0)
        _tell_changes(lost)


def _tell_changes(lost: Sequence[JournalEntry]) -> None:
    """Log each job and each change of one that a client was told to be done."""
    for entry in lost:
        if entry.op == "enqueue":
            for line in entry.lines():
                log.error("job_lost_possible job=%s cause=rollback", line.id)
        elif entry.op in _ASKED:
            for line in entry.lines():
                log.error("change_lost_possible job=%s op=%s cause=rollback", line.id, entry.op)
