"""Journal entries to rows: what Postgres holds after them; between the writer and `redjob.pg.writes`.

Pure, and the hot path of the writer: a line is split once, and a job that is named several times in
a batch comes out once. DISPATCHED is no place in Postgres: such a job is S there, and fires again
after a loss of Redis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from redjob.codec import JournalEntry
from redjob.journal.lines import NO_HEAD, Head, day_of, end_of, head_of, is_sound, sound_text
from redjob.pg.writes import Change, NewJob, Run

# Their lines change no row: a job stays S until a worker has it, and `lose` leaves the row that can
# give the job back.
_MOVED_ON = frozenset({"fire", "release", "requeue", "again", "lose"})
_ENDS = {"C": "completed", "X": "expired", "K": "cancelled"}
_ID = 36  # how long an id is


class Damaged(NamedTuple):
    """A line that cannot be written: no client of redjob's own makes such a one."""

    partition: int
    seq: int
    text: str


class _Job:
    """What a batch has told of an unfinished job; None is not told, 0 no time any more."""

    __slots__ = (
        "attempt",
        "cancel",
        "doc",
        "head",
        "home",
        "partition",
        "past",
        "place",
        "queue",
        "run_at",
        "seq",
        "started",
        "tag",
        "worker",
    )

    def __init__(self, partition: int, home: str, place: str, seq: int) -> None:
        self.partition = partition
        self.home = home
        self.place = place
        self.seq = seq
        self.run_at: int | None = None
        self.tag: str | None = None
        self.attempt: int | None = None
        self.past: str | None = None
        self.worker: str | None = None
        self.started: int | None = None
        self.cancel: int | None = None
        self.doc: str | None = None  # of one that is new in this batch; then these two are as well
        self.queue: str | None = None
        self.head: Head = NO_HEAD


class Fold:
    """Takes in entries of any partitions, each partition's in their order, and has the rows.

    `careful` looks at every line before it is believed, which the writer asks for when Postgres has
    refused a batch: what is not sound is left out and stands in `damaged`.
    """

    def __init__(self, *, careful: bool = False) -> None:
        self.lines = 0
        self.bytes = 0
        self.runs: list[Run] = []
        self.damaged: list[Damaged] = []
        self.unknown: set[str] = set()  # ops of a redjob that is newer than this one
        self._careful = careful
        self._jobs: dict[str, _Job] = {}
        self._ended: set[str] = set()
        self._partition = 0
        self._entry = JournalEntry(0, "", 0, "", "", 0, b"", "")
        self._ops: dict[str, Callable[[list[str]], None]] = {
            "enqueue": self._enqueue,
            "take": self._start,
            "begin": self._start,
            "heartbeat": self._beat,
            "finish": self._finish,
            "reclaim": self._finish,
            "cancel": self._cancel,
            "reschedule": self._reschedule,
            "replay": self._replay,
            "purge": self._purge,
        }

    def add(self, partition: int, entry: JournalEntry) -> bool:
        """Take an entry in; False if it has to wait for the next batch, as it uses an ended id again.

        Raises ValueError for a line that is none, unless `careful`.
        """
        op = entry.op
        if op in _MOVED_ON:
            return True
        take = self._ops.get(op)
        if take is None:
            self.unknown.add(op)
            return True
        self._partition, self._entry = partition, entry
        lines = self._sound_lines() if self._careful else entry.block.decode().split("\n")
        if op == "enqueue" and self._ended and any(line[:_ID] in self._ended for line in lines):
            return False
        self.lines += len(lines)
        self.bytes += len(entry.block)
        take(lines)
        return True

    def jobs(self) -> tuple[list[NewJob], list[Change]]:
        """Return the unfinished jobs: those that are new, and what has changed in others."""
        new: list[NewJob] = []
        changes: list[Change] = []
        for job_id, job in self._jobs.items():
            change = Change(
                job.partition, job_id, day_of(job.home), job.place, job.run_at, job.seq, job.tag,
                job.attempt, job.past, job.worker, job.started, job.cancel,
            )  # fmt: skip
            if job.doc is None:
                changes.append(change)
            else:
                head = job.head
                rest = (head.created, job.queue, head.tenant, head.task, head.priority, job.doc)
                new.append(NewJob(*change[:-2], job.started or None, job.cancel or None, *rest))
        return new, changes

    def _sound_lines(self) -> list[str]:
        sound: list[str] = []
        for line in sound_text(self._entry.block).split("\n"):
            if is_sound(line):
                sound.append(line)
            else:
                self.damaged.append(Damaged(self._partition, self._entry.seq, line[:80]))
        return sound

    def _job(self, job_id: str, home: str, place: str) -> _Job:
        """The job that a line names, moved to a place."""
        seq = self._entry.seq
        job = self._jobs.get(job_id)
        if job is None:
            job = self._jobs[job_id] = _Job(self._partition, home, place, seq)
        else:
            job.place, job.seq = place, seq
        return job

    def _enqueue(self, lines: list[str]) -> None:
        entry, partition = self._entry, self._partition
        for line in lines:
            parts = line.split(" ", 6)
            if len(parts) < 7:
                continue  # from before Postgres was configured
            job_id, home, _, _, run_at, queue, doc = parts
            job = self._jobs[job_id] = _Job(partition, home, "S", entry.seq)
            job.run_at = int(run_at) or entry.at_ms
            job.attempt, job.tag, job.queue, job.doc = 0, entry.tag, queue, doc
            job.head = head_of(doc)

    def _start(self, lines: list[str]) -> None:
        worker, at_ms = self._entry.worker, self._entry.at_ms
        for line in lines:
            job_id, home, _, attempt = line.split(" ", 3)
            job = self._job(job_id, home, "T")
            job.attempt, job.worker, job.started = int(attempt), worker, at_ms

    def _beat(self, lines: list[str]) -> None:
        """A checkpoint of an attempt that goes on, or one that is taken over after a rollback."""
        for line in lines:
            job_id, home, _, attempt, *rest = line.split(" ", 6)
            job = self._job(job_id, home, "T")
            job.attempt, job.worker = int(attempt), self._entry.worker
            if len(rest) > 2:
                job.tag, job.past = self._entry.tag, rest[2]

    def _finish(self, lines: list[str]) -> None:
        """The end of an attempt: its worker told it, or its lease ran out."""
        for line in lines:
            job_id, home, place, attempt, *rest = line.split(" ", 6)
            if place in _ENDS:
                self._end(job_id, home, place, int(attempt), _ENDS[place])
                continue
            job = self._job(job_id, home, "F" if place == "F" else "S")
            past = rest[2]
            end = end_of(past)
            outcome = end.last or ("failed" if self._entry.op == "finish" else "crashed")
            self._run(job_id, job, job.place, int(attempt), outcome, end.error_text)
            job.attempt, job.worker, job.started, job.cancel = int(attempt), None, 0, 0
            job.tag, job.past = self._entry.tag, past
            if place == "S":  # a job that was handed back keeps its time: it is due
                job.run_at = int(rest[0])

    def _cancel(self, lines: list[str]) -> None:
        for line in lines:
            job_id, home, place, *rest = line.split(" ", 6)
            if place == "T":
                self._job(job_id, home, "T").cancel = self._entry.at_ms
            else:
                self._end(job_id, home, "K", int(rest[0]), "cancelled")

    def _reschedule(self, lines: list[str]) -> None:
        for line in lines:
            job_id, home, _, _, run_at, _ = line.split(" ", 5)
            self._job(job_id, home, "S").run_at = int(run_at)

    def _replay(self, lines: list[str]) -> None:
        for line in lines:
            job_id, home, _, _, run_at, _, past = line.split(" ", 6)
            job = self._job(job_id, home, "S")
            job.run_at, job.tag, job.past = int(run_at), self._entry.tag, past

    def _purge(self, lines: list[str]) -> None:
        for line in lines:
            job_id, home, _, attempt = line.split(" ", 3)
            self._end(job_id, home, "F", int(attempt), "purged")

    def _end(self, job_id: str, home: str, state: str, attempt: int, outcome: str) -> None:
        """A job leaves `jobs`: its last row of history carries the record."""
        job = self._jobs.pop(job_id, None)
        if job is None:
            job = _Job(self._partition, home, state, 0)
        self._ended.add(job_id)
        self._run(job_id, job, state, attempt, outcome, final=True)

    def _run(
        self, job_id: str, job: _Job, state: str, attempt: int, outcome: str,
        error: str | None = None, *, final: bool = False,
    ) -> None:  # fmt: skip
        """One row of history; what the batch does not know of it, the row in `jobs` does."""
        entry = self._entry
        worker: str | None = ""
        started = None
        if entry.op not in _BY_CLIENTS:
            known = job.attempt == attempt and job.worker is not None
            worker = entry.worker or (job.worker if known else None)
            started = job.started if known and job.worker == worker else None
        new, head = job.doc is not None, job.head
        self.runs.append(
            Run(
                job.partition, job_id, day_of(job.home), entry.seq, final, state, attempt, worker,
                started, entry.at_ms, outcome, error, job.queue, head.tenant if new else None,
                head.task if new else None, job.doc if final else None,
            )
        )  # fmt: skip


_BY_CLIENTS = frozenset({"cancel", "purge"})  # they end a job, and no attempt
