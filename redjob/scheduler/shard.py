"""One server's part of a node: its clock, its outage and the loops over the partitions that it has.

On a single Redis there is one of these. On a cluster there is one for each primary that has
partitions of this node, so that a primary that is away, slow or wrong in its clock is no matter of
the others.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from redjob.calls.owner_reads import server_time
from redjob.config import SchedulerConfig
from redjob.errors import StoreUnavailable
from redjob.keys import PartitionKeys
from redjob.scheduler.backlog import Backlog
from redjob.scheduler.counters import Counters
from redjob.scheduler.exchange import Exchange
from redjob.scheduler.fire import Firer
from redjob.scheduler.holdings import Holdings
from redjob.scheduler.on_time import OnTime
from redjob.scheduler.outage import Outage
from redjob.scheduler.owner import Known, PartitionOwner
from redjob.scheduler.server_clock import ServerClock
from redjob.scheduler.sweep import Sweep
from redjob.scheduler.tail import Tails
from redjob.scheduler.takeover import Takeover
from redjob.scheduler.trim import Trim
from redjob.scheduler.window import Window
from redjob.store.aio import AsyncStore

log = logging.getLogger("redjob.scheduler")


class Shard:
    """Opens the partitions that it is given (`holdings.follow`) and fires their jobs."""

    def __init__(
        self,
        store: AsyncStore,
        config: SchedulerConfig,
        counters: Counters,
        known: dict[int, Known],
        *,
        rng: random.Random,
        on_fenced: Callable[[int], None],
        on_opened: Callable[[], None],
    ) -> None:
        """Build it; `known` is shared by all shards of a node: partitions move between servers."""
        self.outage = Outage(store.clock, rng, on_away=self._close_all)
        self.holdings = Holdings(self.outage, known, on_fenced=on_fenced)
        self.server = ServerClock(store.clock)
        self._store = store
        self._config = config
        self._counters = counters
        self._on_opened = on_opened

    async def run(self, part: PartitionKeys) -> None:
        """Work until cancelled; `part` is any partition on this server."""
        await self._learn_clock(part)
        async with asyncio.TaskGroup() as group:
            for loop in self._loops():
                group.create_task(loop)

    async def _learn_clock(self, part: PartitionKeys) -> None:
        """Read the server's clock once: the wheel begins there."""
        while True:
            sent = self._store.clock.monotonic()
            try:
                now_ms = await self._store.query(server_time(part))
            except StoreUnavailable as exc:
                log.warning("waiting_for_server reason=%s", exc.reason)
                continue
            received = self._store.clock.monotonic()
            self.server.learn(now_ms, sent=sent, received=received, exact=True)
            return

    def _loops(self) -> list[Coroutine[Any, Any, None]]:
        """Wire the parts; each loop is a step that `Outage.keep_going` repeats."""
        holdings, server, config = self.holdings, self.server, self._config
        exchange = Exchange(self._store, self.outage)
        firer = Firer(exchange, holdings, server, self._counters)
        backlog = Backlog(exchange, firer, server, self.outage)
        on_time = OnTime(firer, server, self.outage, look=backlog.add)
        firer.put_back = on_time.add
        window = Window(
            exchange, holdings, server, config, add=on_time.add, size=lambda: len(on_time)
        )
        sweep = Sweep(exchange, holdings, server, config, backlog=backlog, counters=self._counters)
        tails = Tails(self._store, holdings, self.outage, self._counters, add=on_time.add)
        holdings.on_change = tails.follow_change
        trim = Trim(exchange, holdings, server, config)

        async def prime(owners: Sequence[PartitionOwner]) -> None:
            await sweep.look(owners)  # what is late already comes first
            await window.fill(owners)
            self.outage.worked()
            self._on_opened()

        takeover = Takeover(
            exchange, holdings, self.outage, config, counters=self._counters, prime=prime
        )
        steps = (window.step, sweep.step, trim.step, takeover.step)
        loops = [self.outage.keep_going(step) for step in steps]
        return [on_time.run(), backlog.run(), tails.run(), *loops]

    def _close_all(self) -> None:
        self.holdings.close_all()
