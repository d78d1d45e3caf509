"""A partition as its owner knows it: the fence, the journal's position, what the wheel covers.

State without I/O. Somebody who finds that it does not hold any more closes it (`Holdings.close`),
and a new one is made by a takeover; nothing in here is ever repaired.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from redjob.calls.owner import Fence, Installed
from redjob.codec import JournalEntry
from redjob.errors import JournalForked
from redjob.keys import PartitionKeys

# AOF everysec loses up to 2 s: that long an entry stays in Redis and in memory, to tell a rollback.
KEEP_JOURNAL_S = 2.0
_KEEP_BYTES = 2 << 20  # of journal blocks in memory, a partition
_GRAVE_BYTES = 8 << 20  # tombstones beyond that are left to the scan
_ENDING = frozenset({"finish", "cancel", "reclaim"})
_BURIED = frozenset({b"C", b"K", b"X"})


class JournalGap(JournalForked):
    """Raised when entries were trimmed before they were read: somebody else owned it meanwhile."""

    code = "journal_gap"


class Seen(NamedTuple):
    """A journal entry that was read at a monotonic moment (s)."""

    at: float
    entry: JournalEntry


class Known(NamedTuple):
    """What is left of a closed partition, to tell what Redis has lost when it is taken again."""

    incarnation: str
    seq: int
    tag: str
    recent: list[JournalEntry]
    jobs: int


class Slot:
    """One queue of an owned partition.

    `covered_ms` is set where the wheel holds less than the owner's window; `asked` are ids that came
    out of the wheel and are not answered yet; `lost` those that have no record.
    """

    __slots__ = (
        "asked",
        "covered_ms",
        "draining",
        "due",
        "full",
        "has_ready",
        "lost",
        "owner",
        "queue",
        "rests_until",
    )

    def __init__(self, owner: PartitionOwner, queue: str) -> None:
        self.owner = owner
        self.queue = queue
        self.covered_ms: int | None = None
        self.asked: set[str] = set()
        self.lost: set[str] = set()
        self.draining = False
        self.full = False
        self.has_ready = False
        self.rests_until = float("-inf")  # monotonic s: a damaged queue is not asked all the time
        self.due = 0

    def covers(self, run_at_ms: int) -> bool:
        """Whether a job due then must come into the wheel by the journal: nobody peeks it any more."""
        until_ms = self.owner.window_ms if self.covered_ms is None else self.covered_ms
        return run_at_ms <= until_ms


class PartitionOwner:
    """One partition from its fence on, until `is_open` is false."""

    def __init__(self, part: PartitionKeys, token: Fence, installed: Installed) -> None:
        self.part = part
        self.token = token
        self.incarnation = installed.incarnation
        self.is_open = True
        self.seq: int = installed.at.seq
        self.tag: str = installed.tag
        self.window_ms = installed.at.now_ms  # jobs due until then are the sweep's
        self.slots: dict[str, Slot] = {}
        self.trimmed_seq = 0
        self.scan_cursor: int | None = 0  # None: the pass over the tombstones has ended
        self._recent: deque[Seen] = deque()
        self._recent_bytes = 0
        self._graves: deque[tuple[float, bytes]] = deque()
        self._grave_bytes = 0
        self._trim_to: tuple[int, str] = (0, "")  # only an entry that was read is known to be there

    @property
    def scheduled_jobs(self) -> int:
        """How many jobs were in due when they were last counted."""
        return sum(slot.due for slot in self.slots.values())

    def slot(self, queue: str) -> Slot:
        """Return what is known of a queue."""
        found = self.slots.get(queue)
        if found is None:
            found = self.slots[queue] = Slot(self, queue)
        return found

    def absorb(
        self, entries: Iterable[JournalEntry], add: Callable[[int, Slot, str], None], now: float
    ) -> None:
        """Take in the journal's next entries at monotonic `now`; `add` gets jobs due in the window.

        Raises JournalForked when they do not follow on what was read, JournalGap when some between
        are gone.
        """
        for entry in entries:
            if entry.seq != self.seq + 1:
                raise JournalGap(self.part.index)
            if entry.prev != self.tag:
                raise JournalForked(self.part.index)
            self.seq, self.tag = entry.seq, entry.tag
            self._keep(entry, now)
            block = entry.block
            if b" S " in block:
                for run_at_ms, queue, job_id in scheduled(block):
                    slot = self.slot(queue)
                    if slot.covers(run_at_ms):
                        add(run_at_ms, slot, job_id)
            if entry.op == "lose":
                self._settle_lost(entry)
            if entry.op == "enqueue" and b" R " in block:
                for queue in parked(block):
                    self.slot(queue).has_ready = True

    def _settle_lost(self, entry: JournalEntry) -> None:
        """Pass over these jobs no more: they have left due, and a key may bring one of them back."""
        settled = {line.id for line in entry.lines()}
        for slot in self.slots.values():
            slot.lost -= settled

    def _keep(self, entry: JournalEntry, now: float) -> None:
        self._recent.append(Seen(now, entry))
        self._recent_bytes += len(entry.block)
        while self._recent_bytes > _KEEP_BYTES and len(self._recent) > 1:
            self._forget_oldest()
        if entry.op in _ENDING and self._grave_bytes < _GRAVE_BYTES:
            self._graves.append((now, entry.block))
            self._grave_bytes += len(entry.block)

    def _forget_oldest(self) -> None:
        entry = self._recent.popleft().entry
        self._recent_bytes -= len(entry.block)
        self._trim_to = (entry.seq, entry.tag)

    def trim_point(self, now: float) -> tuple[int, str]:
        """Return seq and tag of the entry up to which the journal may go; seq 0: nothing may.

        Its newest entries stay: a rollback is told by them.
        """
        while len(self._recent) > 1 and now - self._recent[0].at > KEEP_JOURNAL_S:
            self._forget_oldest()
        if len(self._recent) == 1 and now - self._recent[0].at > KEEP_JOURNAL_S:
            entry = self._recent[0].entry  # the very last one stays, in both places
            self._trim_to = (entry.seq, entry.tag)
        return self._trim_to

    def graves_before(self, moment: float) -> Iterator[str]:
        """Yield, and forget, ids whose tombstone was written before a monotonic moment (s)."""
        while self._graves and self._graves[0][0] < moment:
            block = self._graves.popleft()[1]
            self._grave_bytes -= len(block)
            yield from buried(block)

    def remember(self) -> Known:
        """Return what tells later whether Redis went back behind this."""
        recent = [seen.entry for seen in self._recent]
        return Known(self.incarnation, self.seq, self.tag, recent, self.scheduled_jobs)


def scheduled(block: bytes) -> Iterator[tuple[int, str, str]]:
    """Yield (run_at_ms, queue, id) of the lines that put a job into due."""
    for line in block.split(b"\n"):
        words = line.split(b" ", 6)
        if len(words) > 5 and words[2] == b"S":
            yield int(words[4]), words[5].decode(), words[0].decode()


def parked(block: bytes) -> Iterator[str]:
    """Yield the queue of each line that put a job into ready."""
    for line in block.split(b"\n"):
        words = line.split(b" ", 6)
        if len(words) > 5 and words[2] == b"R":
            yield words[5].decode()


def buried(block: bytes) -> Iterator[str]:
    """Yield the id of each line that left a tombstone."""
    for line in block.split(b"\n"):
        words = line.split(b" ", 3)
        if len(words) > 2 and words[2] in _BURIED:
            yield words[0].decode()
