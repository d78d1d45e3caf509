"""What must hold of the journal of a run in which nothing was trimmed, job by job; under history.

The journal is redjob's own account, in the order in which the scripts ran and with Redis' clock. So
it tells what no log can: what the state was when a script changed it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from redjob.model import LETTERS, TRANSITIONS, JobState
from tests.support.history import History, Kind, Rule, Violation

_ALLOWED = {(before, name.split(" ", 1)[0], after) for before, name, after in TRANSITIONS}
_ASKED = (JobState.RUNNING, "cancel", JobState.RUNNING)  # asked to stop: it runs on until it ends
_LOST = "L"  # no state: a place held the job, and its record was gone


class Step(NamedTuple):
    """One change of a job: what was done, and where it is since then (a letter), at Redis' time."""

    seq: int
    op: str
    place: str
    attempt: int
    at_ms: int

    def __str__(self) -> str:
        return f"{self.op} → {self.place} (seq {self.seq}, attempt {self.attempt})"


def lives(history: History) -> dict[str, list[Step]]:
    """The changes of every job, by its id."""
    found: defaultdict[str, list[Step]] = defaultdict(list)
    for dump in history.dumps:
        for entry in dump.journal or ():
            for line in entry.lines():
                step = Step(entry.seq, entry.op, line.place, line.attempt, entry.at_ms)
                found[line.id].append(step)
    return found


def unbroken(history: History) -> Iterator[Violation]:
    """Every number is there once, and every entry names the one before it."""
    for dump in history.dumps:
        seq, tag = 0, ""
        for entry in dump.journal or ():
            if entry.seq != seq + 1 or entry.prev != tag:
                reason = f"p{dump.index}: {entry.seq} after {entry.prev!r} follows {seq} {tag!r}"
                yield Violation("journal", "", reason)
            seq, tag = entry.seq, entry.tag


def steps_allowed(history: History) -> Iterator[Violation]:
    """Every change is one of the table of states; what has ended changes no more."""
    for job_id, steps in lives(history).items():
        state: JobState | None = None
        begun: set[int] = set()
        for step in steps:
            if step.place == _LOST:
                yield Violation("lost", job_id, f"{step} from {state}")
                continue
            after = LETTERS[step.place]
            change = (state, step.op, after)
            if change not in _ALLOWED and change != _ASKED:
                ended = state is not None and state.terminal
                kind: Kind = "two_ends" if ended and after.terminal else "journal"
                yield Violation(kind, job_id, f"{step} from {state}")
            if step.op in {"take", "begin"}:
                if step.attempt in begun:
                    yield Violation("attempt_twice", job_id, f"{step} for the second time")
                begun.add(step.attempt)
            state = after


def leases_respected(history: History) -> Iterator[Violation]:
    """Only who holds the lease ends a running attempt, and nobody ends it while the lease lives."""
    for job_id, steps in lives(history).items():
        taken: Step | None = None
        for step in steps:
            if step.op in {"take", "begin"}:
                if taken is not None:
                    yield Violation(
                        "live_lease", job_id, f"{step} while attempt {taken.attempt} ran"
                    )
                taken = step
            elif step.place != "T":
                if taken is not None and step.op == "finish" and step.attempt != taken.attempt:
                    yield Violation(
                        "stale_finish", job_id, f"{step} while attempt {taken.attempt} ran"
                    )
                if taken is not None and step.op == "reclaim":
                    held_ms = step.at_ms - taken.at_ms
                    if held_ms < history.lease_ms:
                        reason = (
                            f"attempt {taken.attempt} was reclaimed {held_ms} ms after its take"
                        )
                        yield Violation("live_lease", job_id, reason)
                taken = None


def starts_were_taken(history: History) -> Iterator[Violation]:
    """Every start that a task wrote down was taken by a worker before."""
    if any(dump.journal is None for dump in history.dumps):
        return
    taken = {
        (job_id, step.attempt)
        for job_id, steps in lives(history).items()
        for step in steps
        if step.op in {"take", "begin"}
    }
    for start in history.began:
        if (start.job, start.attempt) not in taken:
            yield Violation(
                "journal", start.job, f"attempt {start.attempt} began and was never taken"
            )


def ends_agree(history: History) -> Iterator[Violation]:
    """The place where the journal leaves a job is the place where it is."""
    for job_id, steps in lives(history).items():
        if steps[-1].place == _LOST:
            continue
        state = LETTERS[steps[-1].place]
        ends = history.ends.get(job_id, [])
        if state.terminal and state.value not in ends:
            yield Violation("journal", job_id, f"{steps[-1]}, but it is {ends or 'in no place'}")


JOURNAL_RULES: tuple[Rule, ...] = (
    unbroken,
    steps_allowed,
    leases_respected,
    starts_were_taken,
    ends_agree,
)
