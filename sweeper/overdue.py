"""The overdue watch: jobs that no owner fired are fired here, the second safety net; under node."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from redjob.calls import owner
from redjob.calls.reads import Due, peek_due, queues_due
from redjob.calls.sweep_reads import record_sizes
from redjob.codec import decode_record
from redjob.config import SweeperConfig
from redjob.ids import new_token
from redjob.keys import PartitionKeys
from redjob.store.aio import AsyncStore
from redjob.sweeper.lost import LostJobs
from redjob.sweeper.reading import Outages, chunks, read_each, read_records, spared
from redjob.sweeper.swept import Swept

log = logging.getLogger("redjob.sweeper")


class OverdueWatch:
    """Fires what is overdue where no owner makes headway.

    A busy owner may have a long backlog that is overdue too. It is left alone as long as the first
    job of the queue changes between two looks: help would only send every id twice.
    """

    def __init__(
        self, store: AsyncStore, config: SweeperConfig, outages: Outages, lost: LostJobs
    ) -> None:
        self._store = store
        self._lost = lost
        self._overdue_ms = round(config.overdue_s * 1000)
        self._batch = config.batch
        self._outages = outages
        self._heads: dict[
            tuple[int, str], Due
        ] = {}  # first overdue job of a queue at the last look
        self._bursts: set[tuple[int, str]] = set()  # queues whose burst has been told

    async def watch(self, open_parts: Sequence[tuple[PartitionKeys, int]], swept: Swept) -> None:
        """Look at every queue with overdue jobs; server times (wall ms) stand beside the partitions.

        Raises StoreUnavailable, Hold and whatever else fire refuses with.
        """
        untils = [(part, now_ms - self._overdue_ms) for part, now_ms in open_parts]
        found = await read_each(
            self._store, [queues_due(part, until_ms) for part, until_ms in untils], self._outages
        )
        looks = [
            (part, queue, until_ms)
            for (part, until_ms), queues in zip(untils, found, strict=True)
            for queue, _ in queues or ()
        ]
        pages = await read_each(
            self._store,
            [
                peek_due(part, queue, after_ms=None, until_ms=until_ms, limit=self._batch)
                for part, queue, until_ms in looks
            ],
            self._outages,
        )
        heads: dict[tuple[int, str], Due] = {}
        for (part, queue, until_ms), page in zip(looks, pages, strict=True):
            if page:
                key = (part.index, queue)
                heads[key] = page[0]
                if self._heads.get(key) == page[0]:
                    with spared(self._outages, part, queue):
                        await self._fire_all(part, queue, page, until_ms, swept)
        self._heads = heads
        self._bursts &= heads.keys()

    async def _fire_all(
        self, part: PartitionKeys, queue: str, page: list[Due], until_ms: int, swept: Swept
    ) -> None:
        before = swept.fired
        while page:
            moved = await self._fire(part, queue, page, swept)
            if not moved or len(page) < self._batch:
                break
            again = peek_due(part, queue, after_ms=None, until_ms=until_ms, limit=self._batch)
            page = await self._store.query(again)
        count, key = swept.fired - before, (part.index, queue)
        if count and key not in self._bursts:
            self._bursts.add(key)
            log.warning("overdue_fired partition=%d queue=%s count=%d", part.index, queue, count)

    async def _fire(self, part: PartitionKeys, queue: str, page: list[Due], swept: Swept) -> int:
        """Fire, park or give up the jobs of a page; return how many left due."""
        ids = [due.id for due in page]
        sizes = await self._store.query(record_sizes(part, ids))
        moved = 0
        for chunk in chunks(sizes, self._batch):  # fire copies the records
            call = owner.fire(part, queue, ids[chunk], tag=new_token())
            codes = (await self._store.call(call)).codes
            fired = codes.count("D")
            full = [due for due, code in zip(page[chunk], codes, strict=True) if code == "F"]
            if full:
                fired += await self._park(part, queue, full)
            swept.fired += fired
            moved += fired
            gone = [job_id for job_id, code in zip(ids[chunk], codes, strict=True) if code == "N"]
            if gone:
                moved += await self._lost.lose(part, gone, "due", swept)
        return moved

    async def _park(self, part: PartitionKeys, queue: str, full: list[Due]) -> int:
        scores = {due.id: due.run_at_ms for due in full}
        sizes = await self._store.query(record_sizes(part, list(scores)))
        jobs: list[owner.Parked] = []
        async for job_id, doc in read_records(self._store, part, list(scores), sizes):
            try:
                record = decode_record(doc or b"")
            except msgspec.DecodeError:  # gone since, or damaged: it stays due, the owner tells
                continue
            jobs.append(owner.Parked(job_id, scores[job_id], record.priority, record.tenant))
        if not jobs:
            return 0
        codes = (await self._store.call(owner.park(part, queue, jobs, tag=new_token()))).codes
        return codes.count("D") + codes.count("R")
