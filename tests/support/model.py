"""What one partition must hold and answer: places and counters in plain Python, beside the scripts.

A model method is a script: it takes what the call says, moves jobs in the model and returns the codes
that the script must answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.seed import Job

SILENCE_MS = 10_000
WAITING = frozenset({"due", "stream", "ready"})
LIVING = WAITING | {"running", "dead"}
LETTERS = {
    "due": "S", "stream": "D", "ready": "R", "running": "T", "dead": "F", "purged": "F",
    "lost": "L",
}  # fmt: skip


@dataclass(slots=True, eq=False)
class Line:
    """One entry of a stream; `entry` is its name in dumps, "" until the first dump after it."""

    known: Known
    read: bool = False
    entry: str = ""


@dataclass(slots=True, eq=False)
class Known:
    """One job: its place is a word of LIVING, the letter of its end, purged, lost, or "": nothing is known."""

    job: Job
    place: str = ""
    due_ms: int = 0
    begun: int = 0  # what its attempts field says
    attempt: int = 0
    worker: str = ""
    lease_ms: int = 0
    asked: bool = False
    crashed: bool = False
    died_ms: int = 0
    line: Line | None = None

    @property
    def run(self) -> str:
        return f"{self.attempt} {self.worker}"

    @property
    def letter(self) -> str:
        return LETTERS.get(self.place, self.place)

    def runs_as(self, attempt: int, worker: str) -> bool:
        return self.place == "running" and (self.attempt, self.worker) == (attempt, worker)

    def leave(self, place: str) -> None:
        """Go elsewhere: no entry names it, nobody runs it."""
        self.place, self.line, self.asked = place, None, False
        if place not in LIVING:
            self.begun = 0

    def start(self, attempt: int, worker: str, lease_ms: int) -> None:
        self.leave("running")
        self.attempt, self.worker, self.lease_ms = attempt, worker, lease_ms


@dataclass(slots=True)
class Queue:
    """What a queue holds back, and its stream."""

    limit: float = math.inf
    paused: bool = False
    lines: list[Line] = field(default_factory=list[Line])


@dataclass(slots=True)
class Model:
    """One partition."""

    now_ms: int
    jobs: dict[str, Known] = field(default_factory=dict[str, Known])
    queues: dict[str, Queue] = field(default_factory=dict[str, Queue])
    seen_ms: int = 0
    grace_ms: int = 0

    def of(self, queue: str) -> Iterator[Known]:
        return (known for known in self.jobs.values() if known.job.queue == queue)

    def waits(self, queue: str) -> bool:
        return any(known.place == "ready" for known in self.of(queue))

    def room(self, queue: str, *, behind_ready: bool = True) -> float:
        if behind_ready and self.waits(queue):
            return 0
        return max(0, self.queues[queue].limit - len(self.queues[queue].lines))

    def to_due(self, known: Known, at_ms: int) -> None:
        known.leave("due")
        known.due_ms = at_ms

    def to_stream(self, known: Known) -> None:
        known.leave("stream")
        known.line = Line(known)
        self.queues[known.job.queue].lines.append(known.line)

    def settle(self, line: Line) -> None:
        lines = self.queues[line.known.job.queue].lines
        if line in lines:
            lines.remove(line)

    # scripts

    def enqueue(self, queue: str, new: Sequence[Known], *, again: bool) -> str:
        room, codes = self.room(queue), ""
        for known in new:
            if known.place in LIVING:
                codes += "E"
            elif known.place and again:
                codes += "T"
            elif known.job.run_at_ms > self.now_ms:
                self.to_due(known, known.job.run_at_ms)
                codes += "S"
            else:
                codes += self._send(known, room > 0, else_to="ready")
                room -= 1
        return codes

    def fire(self, queue: str, jobs: Sequence[Known], seen: Sequence[int] | None = None) -> str:
        room, codes = self.room(queue), ""
        for i, known in enumerate(jobs):
            if known.place != "due":
                codes += "A"
            elif seen is not None and seen[i] != known.due_ms:
                codes += "C"
            elif known.due_ms > self.now_ms:
                codes += "E"
            else:
                codes += self._send(known, room > 0, else_to="ready" if seen is not None else "")
                room -= 1
        return codes

    def release(self, queue: str, jobs: Sequence[Known]) -> str:
        room, codes = self.room(queue, behind_ready=False), ""
        for known in jobs:
            if known.place == "ready":
                codes += self._send(known, room > 0)
                room -= 1
            else:
                codes += "A"
        return codes

    def _send(self, known: Known, fits: bool, *, else_to: str = "") -> str:
        if fits:
            self.to_stream(known)
            return "D"
        if not else_to:
            return "F"
        known.leave(else_to)
        return "R"

    def take(
        self, queues: Sequence[str], worker: str, n: int, lease_ms: int
    ) -> tuple[list[str], list[str], bool]:
        """Ids that start, ids that are stale, and whether to release."""
        started: list[str] = []
        stale: list[str] = []
        hint = False
        for name in queues:
            queue = self.queues[name]
            left = n - len(started) - len(stale)
            if left <= 0 or queue.paused:
                continue
            for line in [line for line in queue.lines if not line.read][:left]:
                queue.lines.remove(line)
                known = line.known
                if known.line is line:
                    known.start(known.begun + 1, worker, self.now_ms + lease_ms)
                    started.append(known.job.id)
                else:
                    stale.append(known.job.id)
            hint |= self.waits(name) and self.room(name, behind_ready=False) > 0
        return started, stale, hint

    def begin(self, lines: Sequence[Line], worker: str, lease_ms: int) -> str:
        codes = ""
        for line in lines:
            known = line.known
            if known.line is line:
                known.start(known.begun + 1, worker, self.now_ms + lease_ms)
                codes += "T"
            else:
                codes += "=" if known.place == "running" and known.worker == worker else "A"
            self.settle(line)
        return codes

    def heartbeat(
        self, beats: Sequence[tuple[Known, int, bool]], worker: str, lease_ms: int
    ) -> str:
        codes = ""
        for known, attempt, checkpoint in beats:
            until_ms = self.now_ms + lease_ms
            if known.runs_as(attempt, worker):
                known.lease_ms = until_ms
                codes += "Q" if known.asked else "H"
            elif known.place in WAITING and known.begun == attempt - 1:
                known.start(attempt, worker, until_ms)
                codes += "A"
            else:
                codes += "L"
                continue
            if checkpoint:
                known.begun = attempt - 1
        return codes

    def finish(self, ends: Sequence[tuple[Known, int, str, bool]], worker: str, delay: int) -> str:
        codes = ""
        for known, attempt, outcome, crashed in ends:
            if known.runs_as(attempt, worker):
                codes += self._end(known, outcome, delay, crashed=crashed)
            elif self._counts_late(known, attempt, outcome):
                known.leave("C")
                codes += "V"
            else:
                codes += "L" if known.place not in {"", "lost"} else "N"
        return codes

    def _end(self, known: Known, outcome: str, delay: int, *, crashed: bool) -> str:
        if outcome in "CX":
            known.leave(outcome)
        elif outcome == "F":
            known.begun, known.crashed, known.died_ms = known.attempt, crashed, self.now_ms
            known.leave("dead")
        elif known.asked:
            known.leave("K")
            return "K"
        else:
            known.begun = known.attempt
            if outcome == "B":
                self.to_stream(known)
            else:
                self.to_due(known, self.now_ms + delay)
        return "M"

    def _counts_late(self, known: Known, attempt: int, outcome: str) -> bool:
        waits = known.place in WAITING or (known.place == "dead" and known.crashed)
        return waits and outcome == "C" and known.begun >= attempt - 1

    def grace(self, lease_ms: int) -> bool:
        """Whether a sweeper must wait; it is heard of."""
        if self.now_ms - self.seen_ms > SILENCE_MS:
            self.grace_ms = max(self.grace_ms, self.now_ms + lease_ms)
        self.seen_ms = self.now_ms
        return self.grace_ms > self.now_ms

    def reclaim(self, expired: Sequence[tuple[Known, str, str]], delay: int) -> str:
        codes = ""
        for known, run, outcome in expired:
            if known.place != "running" or known.run != run or known.lease_ms > self.now_ms:
                codes += "L"
            else:
                codes += self._end(known, outcome, delay, crashed=True)
        return codes

    def requeue(self, pairs: Sequence[tuple[Known, Line | None]]) -> str:
        codes = ""
        for known, line in pairs:
            again = line is not None and known.line is line
            if again:
                self.to_stream(known)
            if line is not None:
                self.settle(line)
            codes += "D" if again else "A" if known.place in LIVING else "N"
        return codes

    def cancel(self, known: Known) -> str:
        if known.place == "running":
            known.asked = True
            return "Q"
        if known.place in WAITING:
            known.leave("K")
            return "K"
        return {"dead": "F", "": "A", "lost": "A"}.get(known.place, "E")
