"""One worker process: waits for its namespace, works, stops in order; the entry of the package."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from random import Random

from redjob.clock import Clock, SystemClock
from redjob.config import WorkerConfig
from redjob.errors import NotReady, StoreUnavailable
from redjob.ids import new_token
from redjob.keys import Keyspace
from redjob.store.aio import AsyncStore
from redjob.worker.counters import Counters
from redjob.worker.engine import Engine
from redjob.worker.table import WorkerApp
from redjob.worker.workplace import Workplace

log = logging.getLogger("redjob.worker")

_OPEN_S = 1.0
_SAY_EVERY = 5  # tries to open


class WorkerNode:
    """Runs jobs of an app's tasks until it is told to stop; not to be used twice.

    `counters` say what it did; `last_tick` (seconds of the clock's monotonic) is the last time all
    of its loops were seen at work: a worker whose tick is old hangs, or has no Redis.
    """

    def __init__(
        self,
        app: WorkerApp,
        config: WorkerConfig,
        *,
        store: AsyncStore | None = None,
        clock: Clock | None = None,
        rng: Random | None = None,
    ) -> None:
        self.name = new_token()
        self.counters = Counters()
        self._app = app
        self._config = config
        self._clock: Clock = clock or SystemClock()
        self._rng = rng or Random()
        self._own_store = store is None
        self._store = store or AsyncStore(
            app.settings, app.namespace, partitions=app.partitions, clock=self._clock
        )
        self._stop_asked = False
        self._stopping = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._engine: Engine | None = None
        self._made_s = self._clock.monotonic()

    @property
    def last_tick(self) -> float:
        """When all loops were last seen at work, monotonic seconds."""
        return self._engine.last_tick if self._engine else self._made_s

    @property
    def running(self) -> int:
        """How many attempts run now."""
        return self._engine.runner.unended if self._engine else 0

    def stop(self) -> None:
        """Take no more jobs and let `run` return once the running ones have ended.

        After `stop_grace_s` those left are cancelled and handed back. May be called from a signal
        handler and from any thread, more than once.
        """
        self._stop_asked = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: run has returned
                self._loop.call_soon_threadsafe(self._stopping.set)

    async def run(self) -> None:
        """Work until `stop`; cancelling this stops too, without a grace.

        Raises ServerUnsuitable or PartitionMismatch when this worker can never work here, and
        InvalidArgument for a task whose type hints mean nothing.
        """
        self._loop = asyncio.get_running_loop()
        for task in self._app.tasks.values():
            task.compile()
        try:
            keys = await self._open()
            if keys is not None:
                await self._work(keys)
        finally:
            if self._own_store:
                await self._store.aclose()

    async def _work(self, keys: Keyspace) -> None:
        place = Workplace(
            self._store,
            keys,
            self.name,
            self._config,
            self.counters,
            self._clock,
            self._rng,
        )
        engine = self._engine = Engine(self._app, place)
        engine.start()
        log.info(
            "worker_started worker=%s queues=%s concurrency=%d",
            self.name, ",".join(self._config.queues), self._config.concurrency,
        )  # fmt: skip
        try:
            await self._stopping.wait()
            await engine.drain(self._config.stop_grace_s)
        except asyncio.CancelledError:
            await engine.drain(0.0)
            raise
        finally:
            await engine.close()
            log.info("worker_stopped worker=%s", self.name)

    async def _open(self) -> Keyspace | None:
        """Wait until Redis is there and the namespace is open; None when stopped before."""
        tries = 0
        while not self._stop_asked:
            try:
                return await self._store.open(deadline_s=_OPEN_S)
            except (NotReady, StoreUnavailable) as exc:
                if tries % _SAY_EVERY == 0:
                    log.warning("worker_waits reason=%s", exc)
                tries += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _OPEN_S)
        return None
