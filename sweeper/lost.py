"""Jobs whose record is gone: restored from their entry, or moved to `lost` with an alarm; under its callers."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from redjob.calls import sweep
from redjob.calls.reads import queue_names
from redjob.calls.sweep_reads import forget_lost, without_record
from redjob.calls.work_reads import ready_heads
from redjob.config import SweeperConfig
from redjob.ids import new_token
from redjob.keys import PartitionKeys
from redjob.store.aio import AsyncStore
from redjob.sweeper.reading import Outages, read_each
from redjob.sweeper.swept import Swept

log = logging.getLogger("redjob.sweeper")

_MOST = 50  # jobs a call: each may look into the stream of every queue


class LostJobs:
    """Ends the wait of jobs that nobody can run any more."""

    def __init__(self, store: AsyncStore, config: SweeperConfig, outages: Outages) -> None:
        self._store = store
        self._keep_ms = round(config.dead_keep_s * 1000)
        self._batch = config.batch
        self._outages = outages

    async def lose(self, part: PartitionKeys, ids: Sequence[str], place: str, swept: Swept) -> int:
        """Deal with jobs that were seen in a place without a record; return how many left it.

        Raises StoreUnavailable, Hold.
        """
        queues = await self._store.query(queue_names(part))
        moved = 0
        for start in range(0, len(ids), _MOST):
            chunk = ids[start : start + _MOST]
            call = sweep.lose(part, queues, chunk, tag=new_token())
            codes = (await self._store.call(call)).codes
            for job_id, code in zip(chunk, codes, strict=True):
                if code == "L":
                    log.error(
                        "lost job=%s partition=%d place=%s cause=no_record",
                        job_id, part.index, place,
                    )  # fmt: skip
                elif code == "D":
                    log.warning("record_restored job=%s partition=%d", job_id, part.index)
            moved += codes.count("L")
            swept.restored += codes.count("D")
        swept.lost += moved
        return moved

    async def scan(self, part: PartitionKeys, swept: Swept) -> None:
        """Look at the head of each ready, where release passes over jobs without a record.

        Also drops from `lost` what has been there for as long as dead jobs are kept. Raises
        StoreUnavailable, Hold.
        """
        queues = await self._store.query(queue_names(part))
        heads = await read_each(
            self._store, [ready_heads(part, queue, self._batch) for queue in queues], self._outages
        )
        ids = [job_id for head in heads for job_id in head or ()]
        gone = await self._store.query(without_record(part, ids))
        if gone:
            await self.lose(part, gone, "ready", swept)
        until_ms = self._store.now_ms() - self._keep_ms
        await read_each(self._store, [forget_lost(part, until_ms)], self._outages)
