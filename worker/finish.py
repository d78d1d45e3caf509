"""Reports how attempts ended: batched by itself, repeated until answered; after run, before Redis."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable

from redjob.calls.work import End, finish
from redjob.errors import RedjobError, ScriptFailed
from redjob.ids import new_token
from redjob.keys import PartitionKeys
from redjob.worker.answers import count_answers, tell_repeated
from redjob.worker.attempt import Attempt
from redjob.worker.recent import KEEP_S, Recent, Reported
from redjob.worker.supervise import Background
from redjob.worker.workplace import Workplace

log = logging.getLogger("redjob.worker")

MOST = 128  # jobs a call: about 2 ms of script
MOST_BYTES = 1 << 20
MOST_WAITING = 4096  # reports: beyond it Redis is slower than the tasks, and no more jobs are taken
_FIRST_PAUSE_S = 0.05
_LAST_PAUSE_S = 1.0
_REFUSALS = 3  # by the script itself, of one report alone, before it is given up
_SAY_EVERY_S = 5.0

Report = tuple[Attempt, End]


class _Lane:
    """What waits to be reported to one partition; one call is under way at a time."""

    __slots__ = ("busy", "part", "waiting")

    def __init__(self, part: PartitionKeys) -> None:
        self.part = part
        self.waiting: deque[Report] = deque()
        self.busy = False


class Reporter:
    """Takes ends of attempts and keeps them until Redis has answered; `waiting` counts them."""

    def __init__(
        self,
        place: Workplace,
        answered: Callable[[Attempt], None],
        changed: asyncio.Event,
    ) -> None:
        self.waiting = 0
        self._repeating = False
        self._store = place.store
        self._answered = answered
        self._changed = changed
        self._worker = place.worker
        self._counters = place.counters
        self._clock = place.clock
        self._lanes = [_Lane(part) for part in place.keys.parts]
        self._recent = Recent()
        self._background = Background()
        self._server_changes = place.store.server_changes
        self._said_s = place.clock.monotonic() - _SAY_EVERY_S

    def add(self, attempt: Attempt, end: End) -> None:
        """Report an end; the call leaves in this turn of the event loop unless one is under way."""
        lane = self._lanes[attempt.part.index]
        lane.waiting.append((attempt, end))
        self.waiting += 1
        if not lane.busy:
            lane.busy = True
            self._background.start(self._empty(lane), f"report-{lane.part.index}")

    def behind(self) -> bool:
        """Whether to take no more jobs for now: a changed server is to hear what it may have lost first."""
        if self._store.server_changes != self._server_changes:
            if not self._repeating:
                self._repeating = True
                self._background.start(self._repeat(), "repeat-reports")
            self._server_changes = self._store.server_changes
        return self._repeating or self.waiting > MOST_WAITING

    async def wait_answered(self, timeout_s: float) -> bool:
        """Wait until everything is answered; return whether it came to that in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.waiting:
                    self._changed.clear()
                    await self._changed.wait()
        return not self.waiting

    def close(self) -> None:
        """Give up what has not been answered."""
        self._background.cancel()

    async def _empty(self, lane: _Lane) -> None:
        try:
            while lane.waiting:
                await self._send(lane.part, _cut(lane.waiting))
        finally:
            lane.busy = False

    async def _send(self, part: PartitionKeys, reports: list[Report]) -> None:
        """Report, and repeat it until it is answered; a batch that a script refuses is taken apart."""
        ends = [end for _, end in reports]
        call = finish(part, self._worker, ends, tag=new_token())
        pause_s, refusals = _FIRST_PAUSE_S, 0
        while refusals < (1 if len(reports) > 1 else _REFUSALS):
            try:
                answer = await self._store.call(call)
            except Exception as exc:  # noqa: BLE001 - whatever it is, these reports must not be lost
                self._say(part, exc)
                refusals += isinstance(exc, ScriptFailed)
                await asyncio.sleep(pause_s)
                pause_s = min(_LAST_PAUSE_S, pause_s * 2)
            else:
                self._recent.add(self._clock.monotonic(), call, ends)
                count_answers(self._counters, reports, answer.codes)
                self._settle(reports)
                return
        if len(reports) == 1:
            self._refused(reports)
        else:
            for report in reports:
                await self._send(part, [report])

    def _settle(self, reports: list[Report]) -> None:
        self.waiting -= len(reports)
        for attempt, _ in reports:
            self._answered(attempt)
        self._changed.set()

    def _refused(self, reports: list[Report]) -> None:
        for attempt, end in reports:
            log.error(
                "report_refused job=%s attempt=%d outcome=%s cause=script_failed",
                attempt.id, attempt.attempt, end.outcome,
            )  # fmt: skip
        self._counters.refused += len(reports)
        self._settle(reports)

    async def _repeat(self) -> None:
        reports = self._recent.since(self._clock.monotonic() - KEEP_S)
        log.warning("server_changed repeated_calls=%d", len(reports))
        try:
            for report in reports:
                await self._repeat_one(report)
        finally:
            self._repeating = False
            self._changed.set()

    async def _repeat_one(self, report: Reported) -> None:
        # after a minute its tombstones are gone: the answer would not mean anything
        while self._clock.monotonic() - report.at_s < 2 * KEEP_S:
            try:
                answer = await self._store.call(report.call)
            except RedjobError as exc:
                self._say(self._lanes[0].part, exc)
                await asyncio.sleep(_FIRST_PAUSE_S)
            else:
                tell_repeated(report.ends, answer.codes)
                return

    def _say(self, part: PartitionKeys, exc: Exception) -> None:
        now_s = self._clock.monotonic()
        if now_s - self._said_s >= _SAY_EVERY_S:
            self._said_s = now_s
            known = isinstance(exc, RedjobError)
            log.warning(
                "reports_wait partition=%d count=%d reason=%s",
                part.index, self.waiting, exc, exc_info=None if known else exc,
            )  # fmt: skip


def _cut(waiting: deque[Report]) -> list[Report]:
    """Take the first reports, as many as one call may carry, at least one."""
    reports = [waiting.popleft()]
    size = len(reports[0][1].data)
    while waiting and len(reports) < MOST:
        size += len(waiting[0][1].data)
        if size > MOST_BYTES:
            break
        reports.append(waiting.popleft())
    return reports
