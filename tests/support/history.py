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
from redjob.ids import slot_of
from redjob.model import Past
from redjob.partitions import partition_of

_FORGOTTEN = frozenset(
    {
        "extra_start_possible",
        "rolled_back",
        "unplaced",
        "job_lost_possible",
        "change_lost_possible",
    }
)
_ATTEMPTS = 10  # more than any job of a run has
_UNDONE_MS = 8_000  # from a write that is lost to the line that says that the server is another
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

    `replied_ms` is when the answer came, 0 where nobody noted it.
    `number` is the client's own name for what it wanted: the same number is the same job, however
    often it was asked for. `id` is None where no answer named one. `retry_delay_ms` is the least time
    between a failure and the next start.
    """

    number: int
    id: str | None
    answer: Answer = "accepted"
    replied_ms: int = 0
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


class Replaced(NamedTuple):
    """The log's word that a partition's server was restarted or replaced (wall ms)."""

    partition: int
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
    replaced: Sequence[Replaced] = ()
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
    def named(self) -> frozenset[tuple[str, str, int]]:
        """What redjob said of a server that went back: (event, job, attempt or 0)."""
        return frozenset(
            (line.event, line.job, line.attempt)
            for line in self.told
            if line.event in _FORGOTTEN and line.cause in {"rollback", ""}
        )

    def may_be_gone(self, job: str) -> bool:
        """Whether a server that went back may have lost this job, by the log."""
        if any(("unplaced", job, attempt) in self.named for attempt in range(1, _ATTEMPTS)):
            return True  # it ran, and its end found no trace of it
        replied = max((asked.replied_ms for asked in self.asked_of.get(job, ())), default=0)
        return ("job_lost_possible", job, 0) in self.named or self._undone(job, replied)

    def may_start_again(self, start: Began) -> bool:
        """Whether such a server may have forgotten this attempt or its end, by the log."""
        names = ((event, start.job, start.attempt) for event in _FORGOTTEN)
        return any(name in self.named for name in names) or self._undone(start.job, start.at_ms)

    def may_run_on(self, cancel: Cancel) -> bool:
        """Whether such a server may have forgotten this cancel, by the log."""
        named = ("change_lost_possible", cancel.job, 0) in self.named
        return named or self._undone(cancel.job, cancel.replied_ms)

    @cached_property
    def asked_of(self) -> Mapping[str, list[Asked]]:
        """The enqueues of each job that was named to the client."""
        found: defaultdict[str, list[Asked]] = defaultdict(list)
        for asked in self.asked:
            if asked.id is not None:
                found[asked.id].append(asked)
        return found

    @cached_property
    def gone(self) -> frozenset[str]:
        """Accepted jobs that are in no place, and of which the log said that it may come to that."""
        accepted = {asked.id for asked in self.asked if asked.id and asked.answer == "accepted"}
        nowhere = accepted - self.ends.keys() - self.waiting.keys()
        return frozenset(job for job in nowhere if self.may_be_gone(job))

    def _undone(self, job: str, at_ms: int) -> bool:
        """Whether the job's partition had another server soon after this moment."""
        if not self.replaced:
            return False
        partition = partition_of(slot_of(job), len(self.dumps))
        return any(
            line.partition == partition and 0 <= line.at_ms - at_ms <= _UNDONE_MS
            for line in self.replaced
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
