"""Scheduler and sweeper beside a worker, in one process; under worker.

They have a thread and an event loop of their own: a task that blocks the worker's loop must not
make this process lose its partitions. Code that keeps the GIL still would; that is what separate
processes are for.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from types import TracebackType
from typing import Self

from redjob.cli.service import Place, loop_factory, run_until
from redjob.config import SchedulerConfig, SweeperConfig
from redjob.scheduler import SchedulerNode
from redjob.store.aio import AsyncStore
from redjob.sweeper import SweeperNode

log = logging.getLogger("redjob.service")


class Beside:
    """An async context: the two run inside it. They outlive the worker's drain, not the context."""

    def __init__(self, place: Place, scheduler: SchedulerConfig, sweeper: SweeperConfig) -> None:
        self._place = place
        self._scheduler = scheduler
        self._sweeper = sweeper
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="redjob-beside", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    async def __aenter__(self) -> Self:
        self._thread.start()
        await asyncio.to_thread(self._started.wait)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread.is_alive() and self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(self._main())
        except Exception:  # the worker goes on: other schedulers may be there
            log.exception("beside_broke")
        finally:
            self._started.set()

    async def _main(self) -> None:
        place = self._place
        stores = [
            AsyncStore(place.settings, place.namespace, partitions=place.partitions)
            for _ in range(2)
        ]
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._started.set()
        try:
            await run_until(
                self._stop,
                SchedulerNode(stores[0], self._scheduler).run(),
                SweeperNode(stores[1], self._sweeper).run(),
            )
        finally:
            for store in stores:
                await store.aclose()
