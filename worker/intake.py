"""What becomes of a reply of take: each job is started, ended by its record, or handed back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from redjob.calls.reads import records
from redjob.calls.work import End, Start, Taken
from redjob.codec import is_stub
from redjob.errors import RedjobError
from redjob.keys import PartitionKeys
from redjob.worker import outcome
from redjob.worker.admit import Admitted, admit
from redjob.worker.attempt import Attempt
from redjob.worker.quarantine import is_suspect
from redjob.worker.run import Runner
from redjob.worker.table import RegisteredTask
from redjob.worker.workplace import Workplace

log = logging.getLogger("redjob.worker")

_AGAIN_S = 0.5


class Intake:
    """Takes in what fetch has got; once `stopping`, all of it is handed back."""

    def __init__(
        self,
        place: Workplace,
        tasks: Mapping[str, RegisteredTask],
        runner: Runner,
        report: Callable[[Attempt, End], None],
    ) -> None:
        self.stopping = False
        self._store = place.store
        self._tasks = tasks
        self._queues = place.queues
        self._runner = runner
        self._report = report
        self._counters = place.counters

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
        if any(is_suspect(one.attempt) for one in admitted):  # first: nothing runs beside it yet
            admitted.sort(key=lambda one: not is_suspect(one.attempt))
        used = 0
        for one in admitted:
            one.attempt.beat_s = taken_s
            used += self._start_or_end(one, now_ms, room > used)
        return used

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
            if attempt.past.last == "crashed":
                # Who ended that attempt may have ended itself before it could tell.
                before = attempt.attempt - 1
                log.warning("starts_again job=%s attempt=%d cause=crashed", attempt.id, before)
            runner.begin(attempt, task, arguments)
        except Exception:
            log.exception("start_failed job=%s", attempt.id)
            return False
        return True

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
