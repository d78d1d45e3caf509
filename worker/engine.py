"""The parts of a worker, wired together, once the namespace is known; under node."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from redjob.calls.work import Taken
from redjob.errors import StoreUnavailable
from redjob.keys import PartitionKeys
from redjob.store.sync import SyncStore
from redjob.worker.answers import tell_lease_lost
from redjob.worker.attempt import Attempt, Cause
from redjob.worker.fetch import Fetcher
from redjob.worker.finish import Reporter
from redjob.worker.heartbeat import Heartbeat
from redjob.worker.intake import Intake
from redjob.worker.presence import Presence
from redjob.worker.quarantine import Quarantine
from redjob.worker.run import Runner
from redjob.worker.slots import Slots
from redjob.worker.strays import Strays
from redjob.worker.supervise import Background, supervise
from redjob.worker.table import WorkerApp
from redjob.worker.wake import Bells
from redjob.worker.workplace import Workplace

log = logging.getLogger("redjob.worker")

_CANCEL_S = 2.0  # for cancelled tasks to clean up
_TAKE_S = 5.0  # for takes under way when the worker stops
_REPORT_S = 5.0  # for the last reports


class Engine:
    """Everything that runs in a worker. Made, started, drained and closed in one event loop."""

    def __init__(
        self,
        app: WorkerApp,
        place: Workplace,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._app = app
        self._config = place.config
        self._clock = place.clock
        self._tasks: list[asyncio.Task[None]] = []
        self._takers: list[asyncio.Task[None]] = []
        self._background = Background()
        slots = Slots(place.config.concurrency)
        self.reporter = Reporter(place, self._answered, slots.changed)
        self.runner = Runner(
            slots,
            self.reporter.add,
            self._poke,
            quarantine=Quarantine(place.clock),
            now_ms=place.store.now_ms,
            rng=place.rng,
        )
        self._intake = Intake(
            place,
            app.tasks,
            self.runner,
            self.reporter.add,
            slots=slots,
            background=self._background,
            is_quiet=self._is_quiet,
        )
        self.fetcher = Fetcher(place, slots, self._intake.accept, self._follow, self._is_closed)
        self._strays = Strays(place, self.fetcher.add, self._background)
        self._bells = Bells(place, self.fetcher, slots)
        self._presence = Presence(place)
        beats = SyncStore(app.settings, app.namespace, clock=place.clock)
        self.heart = Heartbeat(beats, self.runner.attempts, self._told, place)

    @property
    def last_tick(self) -> float:
        """When all loops were last seen at work, monotonic seconds."""
        return min(self.fetcher.last_tick, self.heart.last_tick)

    def start(self) -> None:
        """Start all loops."""
        self.heart.start()
        self._takers = [
            self._supervised(f"take-{number}", self.fetcher.run_taker)
            for number in range(self.fetcher.takers)
        ]
        self._tasks = [
            self._supervised("look", self._look),
            self._supervised("bells", self._bells.run),
            self._supervised("presence", self._presence.run),
        ]
        self._background.start(self._warn(), "warn")

    async def drain(self, grace_s: float) -> None:
        """Take no more, give what runs grace_s seconds, hand the rest back, report all of it."""
        self.fetcher.stop()
        self._intake.stopping = True
        await asyncio.gather(self._end_takers(), self._end_attempts(grace_s))
        await self._intake.wait_settled()
        if not await self.reporter.wait_answered(_REPORT_S):
            log.error("unreported count=%d", self.reporter.waiting)

    async def close(self) -> None:
        """End all loops."""
        for task in (*self._takers, *self._tasks):
            task.cancel()
        self._background.cancel()
        self.reporter.close()
        self.runner.close()
        self.heart.stop()
        await self._presence.hide()

    async def _end_takers(self) -> None:
        if self._takers:
            await asyncio.wait(self._takers, timeout=_TAKE_S)

    async def _end_attempts(self, grace_s: float) -> None:
        if grace_s > 0 and await self.runner.wait_ended(grace_s):
            return
        self.runner.hand_back()
        await self.runner.wait_ended(_CANCEL_S)
        if left := self.runner.abandon():
            log.warning("abandoned count=%d", left)

    def _supervised(self, name: str, loop: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        return self._loop.create_task(supervise(name, loop, self._clock), name=f"redjob-{name}")

    async def _look(self) -> None:
        while True:
            await self.fetcher.look()
            await asyncio.sleep(self._config.look_every_s)

    async def _warn(self) -> None:
        declared = {task.queue for task in self._app.tasks.values()}
        with contextlib.suppress(StoreUnavailable):
            await self._presence.warn_of_unknown(self._config.queues, declared)

    def _follow(self, part: PartitionKeys, taken: Taken) -> None:
        if taken.release or taken.stale:
            self._strays.follow(part, taken)

    def _is_quiet(self) -> bool:
        return not (self.runner.unended or self.reporter.waiting or self.fetcher.is_taking)

    def _is_closed(self) -> bool:
        return self.reporter.behind() or self.runner.is_closed

    def _answered(self, attempt: Attempt) -> None:
        self.runner.attempts.discard(attempt)

    def _poke(self) -> None:
        self.heart.poke()

    def _told(self, attempt: Attempt, code: str) -> None:
        """Hand a heartbeat's news to the event loop; called in its thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._hear, attempt, code)

    def _hear(self, attempt: Attempt, code: str) -> None:
        if attempt.ended:
            return  # the answer to its report tells what became of it
        if code == "Q":
            self.runner.stop(attempt, Cause.CANCELLED)
        elif code == "L":
            tell_lease_lost(attempt)
            self.runner.stop(attempt, Cause.LOST)
        elif code == "A":
            log.warning("adopted job=%s attempt=%d cause=rollback", attempt.id, attempt.attempt)
