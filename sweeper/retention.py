"""Retention: dead jobs are kept for inspection and replay, but not for ever; under node."""

from __future__ import annotations

import logging

import msgspec

from redjob.calls import sweep
from redjob.calls.reads import Due, Query, queue_names
from redjob.calls.sweep_reads import dead_before, record_sizes
from redjob.codec import decode_record, stub_of
from redjob.config import SweeperConfig
from redjob.ids import new_token
from redjob.keys import PartitionKeys
from redjob.model import JobState
from redjob.store.aio import AsyncStore
from redjob.sweeper.reading import Outages, read_each, read_records, spared
from redjob.sweeper.swept import Swept

log = logging.getLogger("redjob.sweeper")


class Retention:
    """Drops dead jobs once their time is over."""

    def __init__(self, store: AsyncStore, config: SweeperConfig, outages: Outages) -> None:
        self._store = store
        self._keep_ms = round(config.dead_keep_s * 1000)
        self._batch = config.batch
        self._outages = outages

    async def purge(self, part: PartitionKeys, swept: Swept) -> None:
        """Drop every job of a partition that has been dead for long enough. Raises StoreUnavailable."""
        names = await self._store.query(queue_names(part))
        pages = await read_each(
            self._store, [self._over(part, queue) for queue in names], self._outages
        )
        for queue, page in zip(names, pages, strict=True):
            if page:
                with spared(self._outages, part, queue):
                    await self._purge_queue(part, queue, page, swept)

    async def _purge_queue(
        self, part: PartitionKeys, queue: str, page: list[Due], swept: Swept
    ) -> None:
        dropped = 0
        while page:
            gone = await self._drop(part, queue, page)
            dropped += gone
            if not gone or len(page) < self._batch:
                break
            page = await self._store.query(self._over(part, queue))
        swept.purged += dropped
        if dropped:
            log.info("dead_purged partition=%d queue=%s count=%d", part.index, queue, dropped)

    def _over(self, part: PartitionKeys, queue: str) -> Query[list[Due]]:
        return dead_before(part, queue, self._store.now_ms() - self._keep_ms, self._batch)

    async def _drop(self, part: PartitionKeys, queue: str, dead: list[Due]) -> int:
        died_ms = {due.id: due.run_at_ms for due in dead}
        sizes = await self._store.query(record_sizes(part, list(died_ms)))
        jobs: list[tuple[str, bytes]] = []
        async for job_id, doc in read_records(self._store, part, list(died_ms), sizes):
            jobs.append((job_id, self._stub(doc, died_ms[job_id])))
        call = sweep.purge(part, queue, jobs, keep_ms=self._keep_ms, tag=new_token())
        return (await self._store.call(call)).codes.count("M")

    def _stub(self, doc: bytes | None, died_ms: int) -> bytes:
        try:
            record = decode_record(doc or b"")
        except msgspec.DecodeError:  # no key can be read from it, so none is guarded
            return b""
        return stub_of(record, JobState.FAILED, died_ms, self._store.now_ms())
