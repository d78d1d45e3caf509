"""What happened in a run, from three sources that do not know each other, and what is wrong with it.

The client wrote down what it asked and what it was answered, every task wrote down its own start and
end, redjob's processes logged, and at the end somebody read Redis. `check` is pure: it compares.
In the manner of Jepsen an answer that never came is `unknown`: that job may or may not exist, once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

from redjob.codec import JournalEntry, Tombstone
from redjob.model import Past

_FORGOTTEN = frozenset({"extra_start_possible", "rolled_back"})
Answer = Literal["accepted", "refused", "unknown"]
CancelReply = Literal["cancelled", "requested", "ended", "unknown"]
Outcome = Literal["returned", "raised", "interrupted"]
Kind = Literal[
    "lost", "two_ends", "not_asked", "refused_there", "doubled", "unreturned", "early",
    "unexplained_start", "attempt_twice", "live_lease", "stale_finish", "started_after_cancel",
    "not_cancelled", "dead_too_soon", "not_drained", "journal",
]  # fmt: skip


class Violation(NamedTuple):
    """Something that must not be; `job` is "" where it concerns no single job."""

    kind: Kind
    job: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One enqueue of the client. Times are wall ms.

    `number` is the client's own name for what it wanted: the same number is the same job, however
    often it was asked for. `id` is None where no answer named one. `retry_delay_ms` is the least time
    between a failure and the next start.
    """

    number: int
    id: str | None
    answer: Answer = "accepted"
    run_at_ms: int = 0
    retry_delay_ms: int = 0
    max_attempts: int = 5
    max_crashes: int = 3


class Cancel(NamedTuple):
    """One cancel of the client, with the time (wall ms) at which it had the reply."""

    job: str
    reply: CancelReply
    replied_ms: int


class Began(NamedTuple):
    """A task's own word that an attempt began (wall ms); `number` stands in its payload."""

    job: str
    attempt: int
    number: int
    pid: int
    at_ms: int


class Ended(NamedTuple):
    """A task's own word that an attempt ended (wall ms)."""

    job: str
    attempt: int
    outcome: Outcome
    pid: int
    at_ms: int


class Told(NamedTuple):
    """A log line of redjob about one attempt of a job, or about the job itself: 0 (wall ms)."""

    event: str
    job: str
    attempt: int
    cause: str
    at_ms: int


class StreamState(NamedTuple):
    """A queue's stream: how many entries, how many of them pending, and the depth that is counted."""

    queue: str
    length: int
    pending: int
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDump:
    """What one partition holds. `waiting` has an id's place (`due:q`, `dispatched` …) by its id.

    `journal` is None where it was trimmed meanwhile; else it begins with the first entry.
    """

    index: int
    waiting: Mapping[str, Sequence[str]] = field(default_factory=dict[str, list[str]])
    leases: frozenset[str] = frozenset()
    runs: frozenset[str] = frozenset()
    streams: Sequence[StreamState] = ()
    tombstones: Mapping[str, Tombstone] = field(default_factory=dict[str, Tombstone])
    dead: frozenset[str] = frozenset()
    pasts: Mapping[str, Past] = field(default_factory=dict[str, Past])
    records: frozenset[str] = frozenset()
    leftovers: Sequence[str] = ()
    journal: Sequence[JournalEntry] | None = None


@dataclass(frozen=True, kw_only=True)
class History:
    """Everything that is known of one run. `lease_ms` is what workers took and nobody shortened.

    `stalled` are the processes that were paused: between the take of a job and its first line of code
    any time may have passed in them.
    """

    lease_ms: int
    asked: Sequence[Asked] = ()
    cancels: Sequence[Cancel] = ()
    began: Sequence[Began] = ()
    ended: Sequence[Ended] = ()
    told: Sequence[Told] = ()
    dumps: Sequence[PartitionDump] = ()
    stalled: frozenset[int] = frozenset()

    @cached_property
    def begun_of(self) -> Mapping[str, list[Began]]:
        """The starts of each job, in the order of their attempts."""
        found: defaultdict[str, list[Began]] = defaultdict(list)
        for start in sorted(self.began, key=lambda start: (start.attempt, start.at_ms)):
            found[start.job].append(start)
        return found

    @cached_property
    def ended_of(self) -> Mapping[tuple[str, int], Ended]:
        """The end of each attempt that has one."""
        return {(end.job, end.attempt): end for end in self.ended}

    @cached_property
    def extra_starts(self) -> Mapping[tuple[str, int], Told]:
        """What redjob's log says of attempts that ended unfinished; who ended it comes before who noticed."""
        lines = [line for line in self.told if line.event in {"extra_start", "starts_again"}]
        lines.sort(
            key=lambda line: (
                line.event == "starts_again",
                line.cause == "lease_lost",
                line.at_ms,
            ),
            reverse=True,
        )
        return {(line.job, line.attempt): line for line in lines}

    @cached_property
    def may_be_gone(self) -> frozenset[str]:
        """Jobs of which redjob said that a server which went back may have lost them."""
        return frozenset(line.job for line in self.told if line.event == "job_lost_possible")

    @cached_property
    def may_start_again(self) -> frozenset[tuple[str, int]]:
        """Attempts (job, number) of which such a server may have forgotten the start or the end."""
        return frozenset((line.job, line.attempt) for line in self.told if line.event in _FORGOTTEN)

    @cached_property
    def gone(self) -> frozenset[str]:
        """Accepted jobs that are in no place, and of which the log said that it may come to that."""
        accepted = {asked.id for asked in self.asked if asked.id and asked.answer == "accepted"}
        return frozenset(self.may_be_gone & accepted - self.ends.keys() - self.waiting.keys())

    @cached_property
    def may_run_on(self) -> frozenset[str]:
        """Jobs whose cancel such a server may have forgotten."""
        return frozenset(
            line.job
            for line in self.told
            if line.event == "change_lost_possible" and line.cause == "rollback"
        )

    def was_lost_before(self, start: Began) -> bool:
        """Whether a start came after its lease had ended, in a process that had been paused."""
        line = self.extra_starts.get((start.job, start.attempt))
        return start.pid in self.stalled and line is not None and line.at_ms <= start.at_ms

    @cached_property
    def ends(self) -> Mapping[str, list[str]]:
        """The terminal places of each job: the letter of its tombstone, or F."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for dump in self.dumps:
            for job_id, grave in dump.tombstones.items():
                found[job_id].append(grave.state.value)
            for job_id in dump.dead:
                found[job_id].append("FAILED")
        return found

    @cached_property
    def waiting(self) -> Mapping[str, list[str]]:
        """The places that hold an unfinished job, by its id."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for dump in self.dumps:
            for job_id, places in dump.waiting.items():
                found[job_id] += [f"{place} p{dump.index}" for place in places]
        return found

    @cached_property
    def known(self) -> frozenset[str]:
        """Every id of which there is any trace but the client's own word."""
        return frozenset(self.begun_of) | frozenset(self.ends) | frozenset(self.waiting)


Rule = Callable[[History], Iterator[Violation]]


def check(history: History, rules: Sequence[Rule]) -> list[Violation]:
    """Everything that is wrong with a run, by the rules given, the same thing told once."""
    found: dict[Violation, None] = {}
    for rule in rules:
        found.update(dict.fromkeys(rule(history)))
    return list(found)


def summary(violations: Sequence[Violation], most: int = 20) -> str:
    """The violations for people: how many of each kind, then the first ones in full."""
    counts: defaultdict[str, int] = defaultdict(int)
    for violation in violations:
        counts[violation.kind] += 1
    lines = [f"{count} x {kind}" for kind, count in sorted(counts.items())]
    lines += [f"  {kind} job={job}: {reason}" for kind, job, reason in violations[:most]]
    return "\n".join(lines) or "no violation"
