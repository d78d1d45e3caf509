"""One scheduler process: holds leases, and has the shards work on what it holds, until cancelled."""

from __future__ import annotations

import asyncio
import logging
import random
import statistics

from redjob.config import SchedulerConfig
from redjob.errors import NotReady, RedjobError, StoreUnavailable
from redjob.ids import new_token
from redjob.keys import Keyspace
from redjob.partitions import QUORUM_KEYS
from redjob.scheduler.counters import Counters
from redjob.scheduler.lease import Lease
from redjob.scheduler.outage import Outage
from redjob.scheduler.owner import Known
from redjob.scheduler.quorum import QuorumKeys
from redjob.scheduler.shard import Shard
from redjob.store.aio import AsyncStore
from redjob.store.namespace import default_partitions
from redjob.store.routes import Address

log = logging.getLogger("redjob.scheduler")

_BEAT_AGAIN_S = 0.01
_BEAT_FAILED_S = 0.05
_LEAVE_WITHIN_S = 1.0
_MOST_OFF_MS = 5_000
_LEAST_CLOCKS = 3  # of two that differ nobody can say which is wrong


class SchedulerNode:
    """A scheduler; `counters` says what it did since its start."""

    def __init__(
        self, store: AsyncStore, config: SchedulerConfig, *, rng: random.Random | None = None
    ) -> None:
        self.name = new_token()
        self.counters = Counters()
        self._store = store
        self._config = config
        self._rng = rng or random.Random()
        self._quorum_outage = Outage(store.clock, self._rng, on_away=lambda: None)
        self._known: dict[int, Known] = {}
        self._shards: dict[Address, Shard] = {}
        self._runs: dict[Address, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._lease: Lease | None = None
        self._ready = asyncio.Event()

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions that this node works on now."""
        return frozenset[int]().union(*(shard.holdings.opened for shard in self._shards.values()))

    @property
    def scheduled_jobs(self) -> int:
        """How many jobs were in due when they were last counted, in these partitions."""
        shards = self._shards.values()
        return sum(owner.scheduled_jobs for shard in shards for owner in shard.holdings.owners)

    async def wait_ready(self) -> None:
        """Return when all partitions that are this node's to own are open."""
        await self._ready.wait()

    async def run(self) -> None:
        """Own partitions and fire their jobs until cancelled; then give the leases up.

        Waits for a server that is down. Raises PartitionMismatch, ServerUnsuitable.
        """
        keys = await self._open()
        indexes = (0,) if self._store.is_one_server else range(QUORUM_KEYS)
        self._lease = lease = Lease(
            self.name,
            QuorumKeys(self._store, self.name, on_error=self._renewal_failed, indexes=indexes),
            self._store.clock,
            self._config,
            partitions=keys.partitions,
            on_change=self._assign,
        )
        log.info("scheduler_started node=%s partitions=%d", self.name, keys.partitions)
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                await self._renew(lease)
        finally:
            self._group = None
            await asyncio.shield(lease.leave(within_s=_LEAVE_WITHIN_S))

    async def _open(self) -> Keyspace:
        """Learn the namespace's partitions, or decide them; a full server that has them is no obstacle."""
        while True:
            try:
                return await self._store.open()
            except NotReady:
                create = self._store.asked_partitions or default_partitions(self._store.settings)
                return await self._store.open(create=create)
            except StoreUnavailable as exc:
                log.warning("waiting_for_server reason=%s", exc.reason)

    async def _renew(self, lease: Lease) -> None:
        """Beat every renew_every_s from the beginning of one to that of the next."""
        while True:
            started = self._store.clock.monotonic()
            again = await lease.beat()
            if lease.answered:
                self._renewal_worked()
            self._assign()  # slots may have moved to another server
            self._check_ready()
            left_s = started + self._config.renew_every_s - self._store.clock.monotonic()
            if again:
                left_s = _BEAT_AGAIN_S
            elif not lease.answered:
                left_s = min(left_s, _BEAT_FAILED_S)
            await asyncio.sleep(max(_BEAT_AGAIN_S, left_s))

    def _assign(self) -> None:
        """Give each partition that is held to the shard of its server."""
        held = self._lease.held if self._lease is not None else frozenset[int]()
        shares: dict[Address, set[int]] = {address: set() for address in self._shards}
        wrong = self._wrong_clocks()
        for index in held:
            address = self._store.server_of(self._store.keys.parts[index])
            if address is not None and address not in wrong:
                shares.setdefault(address, set()).add(index)
        for address, share in shares.items():
            if address in self._shards:
                self._shards[address].holdings.follow(frozenset(share), still_held=held)
            elif self._group is not None:
                self._start(address, frozenset(share))
        for address in self._shards.keys() - self._store.servers:
            if not shares[address]:
                self._runs.pop(address).cancel()
                del self._shards[address]

    def _wrong_clocks(self) -> set[Address]:
        """The servers whose clock is far from that of most: what is due there, nobody can tell."""
        clocks = self._store.clocks_ms()
        if len(clocks) < _LEAST_CLOCKS:
            return set()
        median_ms = statistics.median_low(clocks.values())
        off_ms = {address: now_ms - median_ms for address, now_ms in clocks.items()}
        wrong = {address for address, by_ms in off_ms.items() if abs(by_ms) > _MOST_OFF_MS}
        for address in wrong:
            what = f"clock_wrong server={address}"
            self._quorum_outage.say(what, f"off_by_ms={off_ms[address]} partitions=held")
        return wrong

    def _start(self, address: Address, share: frozenset[int]) -> None:
        assert self._group is not None
        shard = self._shards[address] = Shard(
            self._store,
            self._config,
            self.counters,
            self._known,
            rng=self._rng,
            on_fenced=self._disown,
            on_opened=self._check_ready,
        )
        shard.holdings.follow(share, still_held=share)
        part = self._store.keys.parts[min(share)]
        self._runs[address] = self._group.create_task(shard.run(part), name=f"shard-{address}")

    def _renewal_failed(self, exc: RedjobError) -> None:
        """On a single Redis a lost renewal says that it is away; of a cluster it says little."""
        if self._store.is_one_server and self._shards:
            for shard in self._shards.values():
                shard.outage.failed(exc)
        else:
            self._quorum_outage.failed(exc)

    def _renewal_worked(self) -> None:
        self._quorum_outage.worked()
        if self._store.is_one_server:
            for shard in self._shards.values():
                shard.outage.worked()

    def _check_ready(self) -> None:
        lease = self._lease
        if lease is not None and lease.settled and lease.held == self.partitions:
            self._ready.set()

    def _disown(self, index: int) -> None:
        if self._lease is not None:
            self._lease.disown(index)
