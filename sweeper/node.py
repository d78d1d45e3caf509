"""One sweeper process: its two loops and the order of their steps; top of the sweeper."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random

from redjob.calls import sweep
from redjob.config import SweeperConfig
from redjob.errors import Grace, Hold, NotReady, RedjobError, ScriptFailed, StoreUnavailable
from redjob.ids import new_token
from redjob.keys import PartitionKeys
from redjob.store.aio import AsyncStore
from redjob.sweeper.leases import LeaseSweep
from redjob.sweeper.lost import LostJobs
from redjob.sweeper.overdue import OverdueWatch
from redjob.sweeper.reading import Outages
from redjob.sweeper.retention import Retention
from redjob.sweeper.scan import InvariantScan
from redjob.sweeper.swept import Swept

log = logging.getLogger("redjob.sweeper")


class SweeperNode:
    """Watches over all partitions of a namespace; see the package for what it promises.

    `rng` draws the crash backoff.
    """

    def __init__(
        self, store: AsyncStore, config: SweeperConfig, *, rng: Random | None = None
    ) -> None:
        self._store = store
        self._config = config
        self._outages = Outages()
        lost = LostJobs(store, config, self._outages)
        self._leases = LeaseSweep(store, config, rng or Random(), self._outages, lost)
        self._overdue = OverdueWatch(store, config, self._outages, lost)
        self._scan = InvariantScan(store, config, self._leases, self._outages, lost)
        self._retention = Retention(store, config, self._outages)

    async def run(self) -> None:
        """Tick and scan until cancelled; nothing that Redis does ends it.

        Raises PartitionMismatch, ServerUnsuitable when the namespace is not what this process was
        told; Redis, and a namespace that no scheduler has opened yet, are waited for.
        """
        await self._open()
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self._repeat("tick", self.tick, self._config.every_s))
            loops.create_task(self._repeat("scan", self.scan, self._config.scan_every_s))

    async def tick(self) -> Swept:
        """End expired leases and fire what is overdue, once, in every partition that is open.

        Raises StoreUnavailable, and what a script refuses with if a partition changed meanwhile.
        """
        swept = Swept()
        open_parts = await self._pulse(swept)
        await self._leases.sweep(open_parts, swept)
        await self._overdue.watch(open_parts, swept)
        return swept

    async def scan(self) -> Swept:
        """Go through every open partition once: retention, then invariants and streams.

        Retention comes first, in all of them: it is what makes room on a server that is full. What
        goes wrong in one partition keeps the scan from no other. Raises StoreUnavailable when no
        server answers.
        """
        swept = Swept()
        parts = [part for part, _ in await self._pulse(swept)]
        for step in (self._retention.purge, self._scan.scan):
            for part in parts:
                await self._in_part(part, step, swept)
        return swept

    async def _in_part(
        self,
        part: PartitionKeys,
        step: Callable[[PartitionKeys, Swept], Awaitable[None]],
        swept: Swept,
    ) -> None:
        try:
            await step(part, swept)
        except Grace:
            swept.graced += 1
        except Hold:
            swept.held += 1
        except ScriptFailed as exc:
            self._outages.begin(f"damaged_key partition={part.index}", exc.reason)
        except RedjobError as exc:
            self._outages.begin(f"partition_closed partition={part.index}", exc)
        except Exception:  # a sweeper that ends leaves jobs stuck for ever
            log.exception("sweep_failed partition=%d", part.index)

    async def _pulse(self, swept: Swept) -> list[tuple[PartitionKeys, int]]:
        """Say in every partition that a sweeper is there; return the open ones with the server's time.

        The pulse is a reclaim of nothing: it keeps `seen_ms` fresh, so that the grace which follows a
        silence of all sweepers is not taken for one of jobs.
        """
        parts = self._store.keys.parts
        grace_ms = round(self._config.lease_s * 1000)
        replies = await self._store.call_all(
            [sweep.reclaim(part, (), grace_ms=grace_ms, tag=new_token()) for part in parts]
        )
        open_parts: list[tuple[PartitionKeys, int]] = []
        for part, reply in zip(parts, replies, strict=True):
            closed = f"partition_closed partition={part.index}"
            if isinstance(reply, Grace):
                swept.graced += 1
            elif isinstance(reply, Hold):
                swept.held += 1
            elif isinstance(reply, RedjobError):
                self._outages.begin(closed, reply)
                continue
            else:
                open_parts.append((part, reply.at.now_ms))
            self._outages.end(closed)
        return open_parts

    async def _open(self) -> None:
        while True:
            try:
                await self._store.open()
            except (NotReady, StoreUnavailable) as exc:
                self._outages.begin("namespace_closed", exc)
                await asyncio.sleep(self._config.every_s)
            else:
                self._outages.end("namespace_closed")
                return

    async def _repeat(
        self, what: str, step: Callable[[], Awaitable[Swept]], every_s: float
    ) -> None:
        clock = self._store.clock
        while True:
            started = clock.monotonic()
            try:
                swept = await step()
            except RedjobError as exc:
                self._outages.begin(what, exc)
            except Exception:  # a sweeper that ends leaves jobs stuck for ever
                log.exception("sweep_failed what=%s", what)
            else:
                self._outages.end(what)
                log.debug("swept what=%s %s", what, swept)
            await asyncio.sleep(max(0.01, every_s - (clock.monotonic() - started)))
