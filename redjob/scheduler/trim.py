"""Trims the journals and drops old tombstones, every second.

A journal may go up to what was read, since what it told is in the wheel or in due; its last seconds
stay, as they tell a rollback. Tombstones are found in the journal's lines, and by a slow scan those
that an owner before left behind.
"""

from __future__ import annotations

from collections.abc import Sequence

from redjob.calls.call import Call
from redjob.calls.owner import Trimmed, trim
from redjob.calls.owner_reads import tombstone_page
from redjob.clock import Clock
from redjob.config import SchedulerConfig
from redjob.errors import RedjobError
from redjob.scheduler.exchange import Exchange
from redjob.scheduler.holdings import Holdings
from redjob.scheduler.owner import PartitionOwner
from redjob.scheduler.server_clock import ServerClock

_IDS = 500  # tombstones a call
_PAGE = 500  # of the scan, a partition and second
_SCAN_EVERY_S = 60.0
_SLACK_S = (
    1.0  # the journal is read after the tombstone was written; a clock may go a little faster
)


class Trim:
    """Keeps journals and tombstones of the open partitions short."""

    def __init__(
        self, exchange: Exchange, holdings: Holdings, server: ServerClock, config: SchedulerConfig
    ) -> None:
        self._exchange = exchange
        self._clock: Clock = exchange.clock
        self._holdings = holdings
        self._server = server
        self._config = config
        self._scan_at = exchange.clock.monotonic() + _SCAN_EVERY_S

    async def step(self) -> float:
        """Trim all partitions once. Raises StoreUnavailable."""
        owners = self._holdings.owners
        now = self._clock.monotonic()
        if now >= self._scan_at:
            self._scan_at = now + _SCAN_EVERY_S
            for owner in owners:
                owner.scan_cursor = owner.scan_cursor or 0
        scanned = await self._scan([owner for owner in owners if owner.scan_cursor is not None])
        calls: list[Call[Trimmed]] = []
        asked: list[PartitionOwner] = []
        for owner in owners:
            old = owner.graves_before(now - self._config.tombstone_keep_ms / 1000 - _SLACK_S)
            new = self._calls(owner, [*scanned.get(owner.part.index, ()), *old], now)
            calls += new
            asked += [owner] * len(new)
        for owner, result in zip(asked, await self._exchange.call_all(calls), strict=True):
            if isinstance(result, RedjobError):
                self._holdings.refused(owner, result)
        return self._config.trim_every_s

    async def _scan(self, owners: Sequence[PartitionOwner]) -> dict[int, list[str]]:
        """Read a page of tombstones of each partition; return those that are old enough."""
        reads = [tombstone_page(owner.part, owner.scan_cursor or 0, _PAGE) for owner in owners]
        before_ms = self._server.now_ms() - self._config.tombstone_keep_ms
        found: dict[int, list[str]] = {}
        for owner, page in zip(owners, await self._exchange.read_each(reads), strict=True):
            if page is not None:
                owner.scan_cursor = page.cursor or None
                found[owner.part.index] = [
                    job_id for job_id, ended_ms in page.found if ended_ms < before_ms
                ]
        return found

    def _calls(self, owner: PartitionOwner, ids: Sequence[str], now: float) -> list[Call[Trimmed]]:
        if not owner.is_open:
            return []
        seq, tag = owner.trim_point(now)
        if seq == owner.trimmed_seq and not ids:
            return []
        owner.trimmed_seq = seq
        keep_ms = self._config.tombstone_keep_ms
        first = trim(
            owner.part,
            owner.token,
            entry=(seq, tag),
            before=seq,
            keep_ms=keep_ms,
            ids=ids[:_IDS],
        )
        more = [
            trim(
                owner.part,
                owner.token,
                entry=(0, ""),
                before=0,
                keep_ms=keep_ms,
                ids=ids[start : start + _IDS],
            )
            for start in range(_IDS, len(ids), _IDS)
        ]
        return [first, *more]
