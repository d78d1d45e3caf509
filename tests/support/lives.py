"""Lives of jobs as the journal tells them, without a server: each step is one entry that a script could write."""

from __future__ import annotations

from typing import NamedTuple

from redjob.codec import JournalEntry
from redjob.ids import new_id

START_MS = 1_790_000_000_000
HOME = "2026-09-21"
QUEUE = "q"
ID = new_id(START_MS, 1, 1)


class _Life(NamedTuple):
    """Where a job is: '' nowhere, S due, D in its stream, T running, F dead."""

    place: str = ""
    attempt: int = 0
    worker: str = ""


# What can happen to a job in each place.
_STEPS = {
    "": ("enqueue",),
    "S": ("fire", "reschedule", "cancel", "late"),
    "D": ("take", "cancel", "adopt", "late", "requeue"),
    "T": (
        "complete", "retry", "snooze", "hand_back", "die", "expire", "crash", "crash_dead", "ask",
        "checkpoint", "stop",
    ),
    "F": ("replay", "purge", "late"),
}  # fmt: skip


def line_of(doc: str, job_id: str = ID, place: str = "S", run_at: int = START_MS) -> str:
    """A line of enqueue."""
    return f"{job_id} {HOME} {place} 0 {run_at} {QUEUE} {doc}"


class Lives:
    """A few jobs and the journal so far."""

    def __init__(self) -> None:
        self.entries: list[JournalEntry] = []
        self._lives: dict[int, _Life] = {}

    def step(self, job: int, choice: int) -> None:
        """Let something happen to a job that can."""
        steps = _STEPS[self._lives.get(job, _Life()).place]
        self.do(job, steps[choice % len(steps)])

    def do(self, job: int, step: str) -> None:
        """Let this happen."""
        life = self._lives.get(job, _Life())
        seq = len(self.entries) + 1
        at_ms = START_MS + seq * 10_000_000  # some of them on another day
        begun = life.attempt + 1
        worker = f"w{seq % 2}" if step in {"take", "adopt"} else life.worker
        past = f'{{"failures":{seq},"last":"failed","error":{{"type":"E{seq}"}}}}'
        after = f"{at_ms + 90_000_000} {QUEUE}"
        doc = f'{{"home":"{HOME}","created":{at_ms},"task":"t{seq}","queue":"{QUEUE}","payload":{{}}}}'
        told: dict[str, tuple[str, str, _Life]] = {
            "enqueue": ("enqueue", f"{'SD'[seq % 2]} 0 {seq % 2 and at_ms} {QUEUE} {doc}", _Life("S")),
            "fire": ("fire", "D", _Life("D", life.attempt)),
            "requeue": ("requeue", "D", life),
            "reschedule": ("reschedule", f"S {life.attempt} {after}", life),
            "cancel": ("cancel", f"K {life.attempt}", _Life()),
            "take": ("take", f"T {begun}", _Life("T", begun, worker)),
            "adopt": ("heartbeat", f"T {begun}", _Life("T", begun, worker)),
            "late": ("finish", f"C {life.attempt}", _Life()),
            "complete": ("finish", f"C {life.attempt}", _Life()),
            "stop": ("finish", f"K {life.attempt}", _Life()),
            "expire": ("finish", f"X {life.attempt}", _Life()),
            "retry": ("finish", f"S {life.attempt} {after} {past}", _Life("S", life.attempt)),
            "snooze": (
                "finish", f'S {life.attempt} {after} {{"last":"snoozed"}}', _Life("S", life.attempt),
            ),
            "hand_back": (
                "finish", f'D {life.attempt} 0 {QUEUE} {{"last":"handed_back"}}',
                _Life("D", life.attempt),
            ),
            "die": ("finish", f"F {life.attempt} 0 {QUEUE} {past}", _Life("F", life.attempt)),
            "crash": ("reclaim", f"S {life.attempt} {after} {{}}", _Life("S", life.attempt)),
            "crash_dead": ("reclaim", f"F {life.attempt} 0 {QUEUE} {{}}", _Life("F", life.attempt)),
            "ask": ("cancel", "T", life),
            "checkpoint": ("heartbeat", f'T {life.attempt} 0  {{"checkpoint":{seq}}}', life),
            "replay": ("replay", f"S {life.attempt} {at_ms} {QUEUE} {{}}", _Life("S", life.attempt)),
            "purge": ("purge", f"F {life.attempt}", _Life()),
        }  # fmt: skip
        op, rest, self._lives[job] = told[step]
        block = f"{new_id(START_MS, job, job)} {HOME} {rest}".encode()
        by = worker or "w" if op in {"take", "heartbeat", "finish"} else ""
        self.entries.append(JournalEntry(seq, op, 1, f"t{seq}", f"t{seq - 1}", at_ms, block, by))
