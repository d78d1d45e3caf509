"""The invariant scan of one partition: places that disagree are made to agree; under node.

Looks for what no ordinary path leaves behind: a running job without a lease, a dispatched job whose
entry is gone, an entry that a consumer was given and never began. Every repair is one script that
looks again by itself, so that a job which moves meanwhile is left alone.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence

from redjob.calls import sweep
from redjob.calls.sweep_reads import Origin, Page, origins, page_of, without_lease
from redjob.codec import decode_attempts
from redjob.config import SweeperConfig
from redjob.ids import new_token
from redjob.keys import PartitionKeys
from redjob.store.aio import AsyncStore
from redjob.sweeper.leases import LeaseSweep
from redjob.sweeper.lost import LostJobs
from redjob.sweeper.reading import Outages, chunks, spared
from redjob.sweeper.streams import Streams
from redjob.sweeper.swept import Swept
from redjob.sweeper.tenants import Tenants

log = logging.getLogger("redjob.sweeper")

Given = tuple[str, str, Origin]  # id, the entry that it has, where it belongs


class InvariantScan:
    """Goes through `runs`, `dispatched` and the streams' pending entries of a partition."""

    def __init__(
        self,
        store: AsyncStore,
        config: SweeperConfig,
        leases: LeaseSweep,
        outages: Outages,
        lost: LostJobs,
    ) -> None:
        self._store = store
        self._lost = lost
        self._leases = leases
        self._outages = outages
        self._streams = Streams(store, config, outages)
        self._tenants = Tenants(store, config, outages)
        self._grace_ms = round(config.lease_s * 1000)
        self._never_begun_ms = round(config.never_begun_s * 1000)
        self._batch = config.batch
        self._doubted: dict[int, set[tuple[str, bytes]]] = {}

    async def scan(self, part: PartitionKeys, swept: Swept) -> None:
        """Scan one partition once. Raises StoreUnavailable, Grace, Hold."""
        await self._lost_leases(part, swept)
        idle = await self._streams.never_begun(part)
        await self._dispatched(part, idle, swept)
        await self._lost.scan(part, swept)
        await self._streams.settle(part, idle, swept)
        await self._tenants.forget(part, swept)

    async def _lost_leases(self, part: PartitionKeys, swept: Swept) -> None:
        """End attempts that have no lease at all.

        A doubt must hold for two scans in a row: a live worker puts its lease back by its next
        heartbeat, and ending its attempt before would start the job twice.
        """
        before, doubted = self._doubted.get(part.index, set()), set[tuple[str, bytes]]()
        async for page in self._pages(part, part.runs):
            ids = [job_id for job_id, _ in page.fields]
            missing = await self._store.query(without_lease(part, ids))
            found = [f for f, gone in zip(page.fields, missing, strict=True) if gone]
            ends = [job_id for job_id, run in found if (job_id, run) in before]
            doubted.update(field for field in found if field not in before)
            for start in range(0, len(ends), self._batch):
                chunk = ends[start : start + self._batch]
                await self._leases.reclaim(part, chunk, self._store.now_ms(), swept)
        self._doubted[part.index] = doubted

    async def _dispatched(
        self, part: PartitionKeys, idle: dict[str, set[str]], swept: Swept
    ) -> None:
        """Look again at every job that has waited in its stream for long, and at all given ones."""
        async for page in self._pages(part, part.dispatched):
            until_ms = self._store.now_ms() - self._never_begun_ms
            old = [(job_id, entry.decode()) for job_id, entry in page.fields]
            old = [(job_id, entry) for job_id, entry in old if _written_ms(entry) <= until_ms]
            found = await self._store.query(origins(part, [job_id for job_id, _ in old]))
            by_queue: dict[str, list[Given]] = {}
            gone: list[str] = []
            for (job_id, entry), origin in zip(old, found, strict=True):
                if not origin.size:
                    gone.append(job_id)
                elif origin.queue is None:
                    what = f"damaged_record partition={part.index} place=dispatched"
                    self._outages.begin(what, f"job={job_id}")
                else:
                    by_queue.setdefault(origin.queue, []).append((job_id, entry, origin))
            if gone:
                await self._lost.lose(part, gone, "dispatched", swept)
            for queue, given in by_queue.items():
                with spared(self._outages, part, queue):
                    await self._requeue(part, queue, given, idle.get(queue, set()), swept)

    async def _requeue(
        self,
        part: PartitionKeys,
        queue: str,
        given: Sequence[Given],
        idle: set[str],
        swept: Swept,
    ) -> None:
        """Give jobs a new entry where theirs is gone, or was given to a consumer that never began it."""
        for chunk in chunks([origin.size for _, _, origin in given], self._batch):
            jobs = [(job_id, entry if entry in idle else "") for job_id, entry, _ in given[chunk]]
            call = sweep.requeue(part, queue, jobs, grace_ms=self._grace_ms, tag=new_token())
            codes = (await self._store.call(call)).codes
            for (job_id, entry), (*_, origin), code in zip(jobs, given[chunk], codes, strict=True):
                if code == "D":
                    swept.requeued += 1
                    idle.discard(entry)  # requeue has settled it
                    log.warning(
                        "extra_start job=%s attempt=%d cause=%s queue=%s",
                        job_id, decode_attempts(origin.attempts).attempt + 1,
                        "never_begun" if entry else "entry_lost", queue,
                    )  # fmt: skip

    async def _pages(self, part: PartitionKeys, key: str) -> AsyncIterator[Page]:
        cursor = ""
        while cursor != "0":
            page = await self._store.query(page_of(part, key, cursor or "0", self._batch))
            cursor = page.cursor
            yield page


def _written_ms(entry: str) -> int:
    """Server time of an entry, from its id; after a step back of that clock it is too late, never too early."""
    return int(entry.split("-", 1)[0])
