"""What a scheduler process counts: plain numbers, read by whoever shows them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

BOUNDS_MS = (0, 1, 2, 4, 8, 15, 30, 60, 125, 250, 500, 1000, 5000, 60_000)


class Lateness:
    """A histogram of fire times minus due times in ms; `buckets[i]` counts up to `BOUNDS_MS[i]`."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_MS) + 1)  # the last one: beyond all bounds
        self.count = 0
        self.sum_ms = 0
        self.max_ms = 0

    def observe(self, late_ms: int) -> None:
        """Count one job."""
        self.buckets[bisect_left(BOUNDS_MS, late_ms)] += 1
        self.count += 1
        self.sum_ms += late_ms
        self.max_ms = max(self.max_ms, late_ms)


@dataclass(slots=True)
class Counters:
    """Since the start of the process; `lateness` is that of jobs fired on time, not of a backlog."""

    fired: int = 0  # jobs moved to a stream
    overdue: int = 0  # those of them that the sweep found
    early: int = 0  # asked for before their time, and refused by the script
    absent: int = 0  # asked for when they had moved on: cancelled, rescheduled, fired by another
    parked: int = 0  # jobs put into ready
    released: int = 0  # jobs let out of it
    lost: int = 0  # due jobs without a record
    takeovers: int = 0
    rollbacks: int = 0  # journals that went back
    emptied: int = 0  # partitions found gone
    journal_entries: int = 0
    lateness: Lateness = field(default_factory=Lateness)
