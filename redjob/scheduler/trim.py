"""Trims journals behind their reader, and drops tombstones that have answered long enough.

Both are the owner's alone and carry its fence. Ids of tombstones come from the journal as it is
read; a slow scan finds those that were written before this owner came.
"""

from __future__ import annotations

from itertools import islice

from redjob.calls.call import Call
from redjob.calls.owner import Trimmed, trim
from redjob.calls.owner_reads import tombstone_page
from redjob.config import SchedulerConfig
from redjob.errors import RedjobError
from redjob.scheduler.holdings import Holdings
from redjob.scheduler.owner import PartitionOwner
from redjob.scheduler.reading import read_each
from redjob.scheduler.server_clock import ServerClock
from redjob.store.aio import AsyncStore

_IDS = 500  # tombstones a call
_CALLS = 8  # a partition and step
_SCAN_EVERY_S = 60.0


class Trim:
    """Cuts journals and tombstones of the open partitions."""

    def __init__(
        self, store: AsyncStore, holdings: Holdings, server: ServerClock, config: SchedulerConfig
    ) -> None:
        self._store = store
        self._holdings = holdings
        self._server = server
        self._config = config
        self._scan_at = store.clock.monotonic() + _SCAN_EVERY_S

    async def step(self) -> float:
        """Trim each open partition once. Raises StoreUnavailable."""
        owners = self._holdings.owners
        scanned = await self._scan(owners)
        now = self._store.clock.monotonic()
        asked: list[PartitionOwner] = []
        calls: list[Call[Trimmed]] = []
        for owner in owners:
            old = owner.graves_before(now - self._config.tombstone_keep_ms / 1000)
            ids = [*scanned.get(owner, ()), *islice(old, _IDS * _CALLS)]
            for call in self._calls(owner, ids, owner.trim_point(now)):
                asked.append(owner)
                calls.append(call)
        for owner, result in zip(asked, await self._store.call_all(calls), strict=True):
            if isinstance(result, RedjobError):
                self._holdings.refused(owner, result)
        return self._config.trim_every_s

    def _calls(
        self, owner: PartitionOwner, ids: list[str], point: tuple[int, str]
    ) -> list[Call[Trimmed]]:
        seq, tag = point
        if seq == owner.trimmed_seq and not ids:
            return []
        owner.trimmed_seq = seq
        return [
            trim(
                owner.part,
                owner.token,
                seq=seq,
                entry_tag=tag,
                keep_ms=self._config.tombstone_keep_ms,
                ids=ids[start : start + _IDS],
            )
            for start in range(0, max(1, len(ids)), _IDS)
        ]

    async def _scan(self, owners: list[PartitionOwner]) -> dict[PartitionOwner, list[str]]:
        """Read a page of tombstones of each partition whose pass goes on; return the old ones."""
        if self._store.clock.monotonic() >= self._scan_at:
            self._scan_at = self._store.clock.monotonic() + _SCAN_EVERY_S
            for owner in owners:
                if owner.scan_cursor is None:
                    owner.scan_cursor = 0
        going = [(o, o.scan_cursor) for o in owners if o.scan_cursor is not None]
        pages = await read_each(
            self._store, [tombstone_page(owner.part, cursor, _IDS) for owner, cursor in going]
        )
        oldest_ms = self._server.now_ms() - self._config.tombstone_keep_ms
        found: dict[PartitionOwner, list[str]] = {}
        for (owner, _), page in zip(going, pages, strict=True):
            if page is None:
                owner.scan_cursor = None
                continue
            owner.scan_cursor = page.cursor or None
            found[owner] = [job_id for job_id, ended_ms in page.found if ended_ms <= oldest_ms]
        return found
