"""One scheduler process: puts the parts together and runs their loops until it is cancelled."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine, Sequence
from typing import Any

from redjob.calls.owner_reads import server_time
from redjob.config import SchedulerConfig
from redjob.errors import NotReady, StoreUnavailable
from redjob.ids import new_token
from redjob.keys import Keyspace
from redjob.scheduler.backlog import Backlog
from redjob.scheduler.counters import Counters
from redjob.scheduler.exchange import Exchange
from redjob.scheduler.fire import Firer
from redjob.scheduler.holdings import Holdings
from redjob.scheduler.lease import Lease
from redjob.scheduler.on_time import OnTime
from redjob.scheduler.outage import Outage
from redjob.scheduler.owner import PartitionOwner
from redjob.scheduler.quorum import QuorumKeys
from redjob.scheduler.server_clock import ServerClock
from redjob.scheduler.sweep import Sweep
from redjob.scheduler.tail import Tail
from redjob.scheduler.takeover import Takeover
from redjob.scheduler.trim import Trim
from redjob.scheduler.window import Window
from redjob.store.aio import AsyncStore
from redjob.store.namespace import DEFAULT_PARTITIONS

log = logging.getLogger("redjob.scheduler")

_BEAT_AGAIN_S = 0.01
_BEAT_FAILED_S = 0.05
_LEAVE_WITHIN_S = 1.0


class SchedulerNode:
    """A scheduler; `counters` says what it did since its start."""

    def __init__(
        self, store: AsyncStore, config: SchedulerConfig, *, rng: random.Random | None = None
    ) -> None:
        self.name = new_token()
        self.counters = Counters()
        self.server = ServerClock(store.clock)
        self._store = store
        self._config = config
        self._outage = Outage(
            store.clock,
            rng or random.Random(),
            on_away=self._close_all,
        )
        self._holdings = Holdings(self._outage, on_fenced=self._disown)
        self._lease: Lease | None = None
        self._ready = asyncio.Event()

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions that this node works on now."""
        return frozenset(self._holdings.opened)

    @property
    def scheduled_jobs(self) -> int:
        """How many jobs were in due when they were last counted, in these partitions."""
        return sum(owner.scheduled_jobs for owner in self._holdings.owners)

    async def wait_ready(self) -> None:
        """Return when all partitions that are this node's to own are open."""
        await self._ready.wait()

    async def run(self) -> None:
        """Own partitions and fire their jobs until cancelled; then give the leases up.

        Waits for a server that is down. Raises PartitionMismatch, ServerUnsuitable.
        """
        keys = await self._open()
        await self._learn_clock()
        self._lease = lease = Lease(
            self.name,
            QuorumKeys(self._store, self.name, on_error=self._outage.failed),
            self._store.clock,
            self._config,
            partitions=keys.partitions,
            on_change=lambda: self._holdings.follow(lease.held),
        )
        log.info("scheduler_started node=%s partitions=%d", self.name, keys.partitions)
        try:
            async with asyncio.TaskGroup() as group:
                for loop in self._loops():
                    group.create_task(loop)
                group.create_task(self._renew(lease))
        finally:
            await asyncio.shield(lease.leave(within_s=_LEAVE_WITHIN_S))

    async def _open(self) -> Keyspace:
        """Learn the namespace's partitions, or decide them; a full server that has them is no obstacle."""
        while True:
            try:
                return await self._store.open()
            except NotReady:
                create = self._store.asked_partitions or DEFAULT_PARTITIONS
                return await self._store.open(create=create)
            except StoreUnavailable as exc:
                log.warning("waiting_for_server reason=%s", exc.reason)

    async def _learn_clock(self) -> None:
        """Read the server's clock once: the wheel begins there."""
        while True:
            sent = self._store.clock.monotonic()
            try:
                now_ms = await self._store.query(server_time())
            except StoreUnavailable as exc:
                log.warning("waiting_for_server reason=%s", exc.reason)
                continue
            received = self._store.clock.monotonic()
            self.server.learn(now_ms, sent=sent, received=received, exact=True)
            return

    def _loops(self) -> list[Coroutine[Any, Any, None]]:
        """Wire the parts; each loop is a step that `Outage.keep_going` repeats."""
        holdings, server, config = self._holdings, self.server, self._config
        exchange = Exchange(self._store, self._outage)
        firer = Firer(exchange, holdings, server, self.counters)
        backlog = Backlog(exchange, firer, server, self._outage)
        on_time = OnTime(firer, server, self._outage, look=backlog.add)
        firer.put_back = on_time.add
        window = Window(
            exchange, holdings, server, config, add=on_time.add, size=lambda: len(on_time)
        )
        sweep = Sweep(exchange, holdings, server, config, backlog=backlog, counters=self.counters)
        tail = Tail(self._store, holdings, self._outage, self.counters, add=on_time.add)
        holdings.on_change = tail.follow_change
        trim = Trim(exchange, holdings, server, config)

        async def prime(owners: Sequence[PartitionOwner]) -> None:
            await sweep.look(owners)  # what is late already comes first
            await window.fill(owners)
            self._check_ready()

        takeover = Takeover(
            exchange, holdings, self._outage, config, counters=self.counters, prime=prime
        )
        steps = (window.step, sweep.step, trim.step, takeover.step)
        loops = [self._outage.keep_going(step) for step in steps]
        return [on_time.run(), backlog.run(), tail.run(), *loops]

    async def _renew(self, lease: Lease) -> None:
        """Beat every renew_every_s from the beginning of one to that of the next."""
        while True:
            started = self._store.clock.monotonic()
            again = await lease.beat()
            if lease.answered:
                self._outage.worked()
            self._check_ready()
            left_s = started + self._config.renew_every_s - self._store.clock.monotonic()
            if again:
                left_s = _BEAT_AGAIN_S
            elif not lease.answered:
                left_s = min(left_s, _BEAT_FAILED_S)
            await asyncio.sleep(max(_BEAT_AGAIN_S, left_s))

    def _check_ready(self) -> None:
        lease = self._lease
        if lease is not None and lease.settled and not self._holdings.missing:
            self._ready.set()

    def _close_all(self) -> None:
        self._holdings.close_all()

    def _disown(self, index: int) -> None:
        if self._lease is not None:
            self._lease.disown(index)
