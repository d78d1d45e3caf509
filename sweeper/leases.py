"""Expired worker leases: each attempt that ended without a word is ended here; under node."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from random import Random

import msgspec

from redjob.calls import sweep
from redjob.calls.sweep_reads import RunFacts, expired, run_facts
from redjob.config import SweeperConfig
from redjob.ids import new_token
from redjob.keys import PartitionKeys
from redjob.store.aio import AsyncStore
from redjob.sweeper.lost import LostJobs
from redjob.sweeper.reading import Outages, chunks, read_each, read_records, spared
from redjob.sweeper.swept import Swept
from redjob.sweeper.verdict import Verdict, judge

log = logging.getLogger("redjob.sweeper")


class LeaseSweep:
    """Ends attempts whose lease ran out, in all partitions."""

    def __init__(
        self,
        store: AsyncStore,
        config: SweeperConfig,
        rng: Random,
        outages: Outages,
        lost: LostJobs,
    ) -> None:
        self._store = store
        self._lost = lost
        self._grace_ms = round(config.lease_s * 1000)
        self._batch = config.batch
        self._rng = rng
        self._outages = outages

    async def sweep(self, open_parts: Sequence[tuple[PartitionKeys, int]], swept: Swept) -> None:
        """End every attempt whose lease ended before the server time (wall ms) beside its partition.

        Raises StoreUnavailable, Grace, Hold and whatever else reclaim refuses with.
        """
        queries = [expired(part, now_ms, skip=0, limit=self._batch) for part, now_ms in open_parts]
        pages = await read_each(self._store, queries, self._outages)
        for (part, now_ms), ids in zip(open_parts, pages, strict=True):
            if ids:
                with spared(self._outages, part):
                    await self._sweep_part(part, ids, now_ms, swept)

    async def reclaim(
        self, part: PartitionKeys, ids: Sequence[str], now_ms: int, swept: Swept
    ) -> int:
        """End the attempts of these jobs that have no live lease; return how many were moved.

        Raises as `sweep`.
        """
        found = await self._store.query(run_facts(part, ids))
        facts = dict(zip(ids, found, strict=True))
        verdicts: list[Verdict] = []
        lost: list[str] = []
        sizes = [facts[job_id].size for job_id in ids]
        async for job_id, doc in read_records(self._store, part, ids, sizes):
            if doc is None:
                lost.append(job_id)
            else:
                verdicts += self._judge(job_id, doc, facts[job_id], now_ms)
        moved = await self._lost.lose(part, lost, "running", swept) if lost else 0
        for chunk in chunks([len(v.expired.end.data) for v in verdicts], self._batch):
            moved += await self._move(part, verdicts[chunk], swept)
        return moved

    async def _sweep_part(
        self, part: PartitionKeys, ids: list[str], now_ms: int, swept: Swept
    ) -> None:
        skip = 0
        while ids:
            moved = await self.reclaim(part, ids, now_ms, swept)
            if len(ids) < self._batch:
                break
            skip += len(ids) - moved  # those that cannot be moved must not hide the others
            ids = await self._store.query(expired(part, now_ms, skip=skip, limit=self._batch))

    def _judge(self, job_id: str, doc: bytes, facts: RunFacts, now_ms: int) -> list[Verdict]:
        try:
            return [judge(job_id, doc, facts, now_ms, self._rng)]
        except (msgspec.DecodeError, ValueError) as exc:  # garbage in one job stops no other
            self._outages.begin(f"damaged_record job={job_id}", type(exc).__name__)
            return []

    async def _move(self, part: PartitionKeys, verdicts: list[Verdict], swept: Swept) -> int:
        tag = new_token()
        attempts = [verdict.expired for verdict in verdicts]
        call = sweep.reclaim(part, attempts, grace_ms=self._grace_ms, tag=tag)
        codes = list((await self._store.call(call)).codes)
        await self._own_up(part, verdicts, codes, tag)
        for code, verdict in zip(codes, verdicts, strict=True):
            if code in "MK":
                _account(code, verdict, swept)
        return sum(code in "MK" for code in codes)

    async def _own_up(
        self, part: PartitionKeys, verdicts: list[Verdict], codes: list[str], tag: str
    ) -> None:
        """Turn L into M where a try of this very call, whose reply was lost, had moved the job.

        Else the second start would be one that no log line explains.
        """
        doubtful = [index for index, code in enumerate(codes) if code == "L"]
        ids = [verdicts[index].expired.end.id for index in doubtful]
        found = await self._store.query(run_facts(part, ids))
        for index, facts in zip(doubtful, found, strict=True):
            if facts.attempts.split(b" ", 2)[1:2] == [tag.encode()]:
                codes[index] = "M"


def _account(code: str, verdict: Verdict, swept: Swept) -> None:
    end = verdict.expired.end
    if code == "K":
        swept.cancelled += 1
        log.info("cancelled job=%s attempt=%d worker=%s", end.id, verdict.attempt, verdict.worker)
    elif end.outcome == "F":
        swept.died += 1
        log.warning(
            "dead job=%s attempt=%d cause=crash crashes=%d worker=%s",
            end.id, verdict.attempt, verdict.crashes, verdict.worker,
        )  # fmt: skip
    else:
        swept.reclaimed += 1
        log.warning(
            "extra_start job=%s attempt=%d cause=lease_expired worker=%s delay_ms=%d",
            end.id, verdict.attempt, verdict.worker, end.number,
        )  # fmt: skip
