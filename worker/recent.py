"""The last reports, kept for the case that the server comes back without them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from redjob.calls.call import Call
from redjob.calls.work import Codes, End

KEEP_S = 30.0
# A bound for memory at full speed: 20,000 jobs/s are kept for 1.5 s, more than an append-only file
# that is synced every second loses.
KEEP_JOBS = 32_768
KEEP_BYTES = 16 << 20


class Reported(NamedTuple):
    """A report that was answered at `at_s` (monotonic)."""

    at_s: float
    call: Call[Codes]
    ends: Sequence[End]
    size: int


class Recent:
    """Reports of the last 30 s, or as many as may be kept."""

    def __init__(self) -> None:
        self._reports: deque[Reported] = deque()
        self._jobs = 0
        self._size = 0

    def add(self, at_s: float, call: Call[Codes], ends: Sequence[End]) -> None:
        """Keep a report that was answered at at_s (monotonic)."""
        size = sum(len(end.data) for end in ends)
        self._reports.append(Reported(at_s, call, ends, size))
        self._jobs += len(ends)
        self._size += size
        while self._jobs > KEEP_JOBS or self._size > KEEP_BYTES or self._oldest_s() < at_s - KEEP_S:
            self._drop()

    def since(self, at_s: float) -> list[Reported]:
        """Return the reports answered after at_s (monotonic), oldest first."""
        return [report for report in self._reports if report.at_s > at_s]

    def _oldest_s(self) -> float:
        return self._reports[0].at_s if self._reports else float("inf")

    def _drop(self) -> None:
        report = self._reports.popleft()
        self._jobs -= len(report.ends)
        self._size -= report.size
