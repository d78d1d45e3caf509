"""What becomes of a reply of take: each job is started, ended by its record, or handed back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any

from redjob.calls.reads import records
from redjob.calls.work import End, Start, Taken
from redjob.codec import is_stub
from redjob.errors import RedjobError
from redjob.keys import PartitionKeys
from redjob.worker import outcome
from redjob.worker.admit import Admitted, admit
from redjob.worker.attempt import Attempt
from redjob.worker.run import Runner
from redjob.worker.slots import Slots
from redjob.worker.supervise import Background
from redjob.worker.table import RegisteredTask
from redjob.worker.workplace import Workplace

log = logging.getLogger("redjob.worker")

_AGAIN_S = 0.5
_LOOK_S = 0.05


class Intake:
    """Takes in what fetch has got; once `stopping`, all of it is handed back."""

    def __init__(
        self,
        place: Workplace,
        tasks: Mapping[str, RegisteredTask],
        runner: Runner,
        report: Callable[[Attempt, End], None],
        *,
        slots: Slots,
        background: Background,
        is_quiet: Callable[[], bool],
    ) -> None:
        """Build it; `is_quiet` says that nothing runs, is taken or waits for an answer."""
        self._clock = place.clock
        self._lease_s = place.config.lease_s
        self._settled = asyncio.Event()
        self._settled.set()
        self._slots = slots
        self._changed = slots.changed
        self._background = background
        self._is_quiet = is_quiet
        self.stopping = False
        self._store = place.store
        self._tasks = tasks
        self._queues = place.queues
        self._runner = runner
        self._report = report
        self._counters = place.counters

    async def wait_settled(self) -> None:
        """Wait until no job is left that is neither running nor given back."""
        await self._settled.wait()

    async def accept(self, part: PartitionKeys, taken: Taken, room: int, taken_s: float) -> int:
        """Start up to `room` jobs; return how many were. taken_s: monotonic, when take was sent.

        Nothing is started before the last await, so that a caller who is cancelled knows the number.
        """
        starts = taken.starts
        if any(not start.doc for start in starts):  # the answer to a repeated request
            starts = await self._with_records(part, starts)
        self._counters.taken += len(starts)
        now_ms = taken.at.now_ms
        admitted = [one for start in starts if (one := self._admit(start, part, now_ms))]
        for one in admitted:
            one.attempt.beat_s = taken_s
        alone = self._enter_alone(admitted) if room else None
        used = int(alone is not None)
        for one in admitted:
            if one is not alone:
                used += self._start_or_end(one, now_ms, room > used)
        if alone is not None:
            self._settled.clear()
            self._background.start(self._begin_alone(alone), f"alone-{alone.attempt.id}")
        return used

    def _enter_alone(self, admitted: list[Admitted]) -> Admitted | None:
        """Choose a job that is to begin alone, if there is one and nothing runs."""
        quarantine, running = self._runner.quarantine, self._runner.unended
        startable = (one for one in admitted if one.end is None and not self.stopping)
        return next((one for one in startable if quarantine.enters(one.attempt, running)), None)

    async def _begin_alone(self, admitted: Admitted) -> None:
        """Begin a job once this process holds no other: what was taken beside it has gone back."""
        attempt, task, arguments, _ = admitted
        # Its lease is not renewed before it begins: with less than half of it left it goes back too.
        begin_by = attempt.beat_s + self._lease_s / 2
        while not (is_late := self._clock.monotonic() > begin_by or self.stopping):
            if self._is_quiet():
                break
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._changed.wait()
        if is_late or task is None:
            self._runner.quarantine.ended(attempt)
            attempt.ended = True
            self._slots.release()
            self._report(attempt, outcome.handed_back(attempt, self._store.now_ms(attempt.part)))
            self._settled.set()
            return
        self._settled.set()
        log.warning("begins_alone job=%s crashes=%d", attempt.id, attempt.past.crashes)
        self._runner.quarantine.began(attempt)
        self._begin(attempt, task, arguments)

    def _admit(self, start: Start, part: PartitionKeys, now_ms: int) -> Admitted | None:
        try:
            return admit(start, part, self._tasks, self._queues, now_ms)
        except Exception:  # a job that breaks something breaks only itself
            log.exception("start_failed job=%s", start.id)
            return None

    def _start_or_end(self, admitted: Admitted, now_ms: int, place: bool) -> bool:
        """Return whether the job took a slot; a job that breaks something breaks only itself."""
        attempt, task, arguments, end = admitted
        runner = self._runner
        try:
            if end is None and (
                self.stopping or not place or not runner.quarantine.admits(attempt, runner.unended)
            ):
                end = outcome.handed_back(attempt, now_ms)
            if end is not None or task is None:
                assert end is not None
                attempt.ended = True
                self._report(attempt, end)
                return False
            self._begin(attempt, task, arguments)
        except Exception:
            log.exception("start_failed job=%s", attempt.id)
            return False
        return True

    def _begin(self, attempt: Attempt, task: RegisteredTask, arguments: dict[str, Any]) -> None:
        if attempt.past.last == "crashed":
            # Who ended that attempt may have ended itself before it could tell.
            before = attempt.attempt - 1
            log.warning("starts_again job=%s attempt=%d cause=crashed", attempt.id, before)
        self._runner.begin(attempt, task, arguments)

    async def _with_records(self, part: PartitionKeys, starts: list[Start]) -> list[Start]:
        """Read the records of jobs that are ours already: asked until answered, as they are started."""
        ids = [start.id for start in starts]
        docs: list[bytes | None] | None = None
        while docs is None:
            try:
                docs = await self._store.query(records(part, ids))
            except RedjobError:
                await asyncio.sleep(_AGAIN_S)
        whole: list[Start] = []
        for start, doc in zip(starts, docs, strict=True):
            if doc is None or is_stub(doc):
                log.warning("record_missing job=%s partition=%d", start.id, part.index)
            else:
                whole.append(start._replace(doc=doc))
        return whole
