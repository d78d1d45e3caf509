"""Keeps a job that may bring its process down away from the others: under intake, beside run.

When a process dies, all that it held counts a crash, and nobody can tell whose fault it was. So an
attempt that one more crash would make dead begins alone: if that kills the process, it was the one,
and an innocent that was beside it before gets through.
"""

from __future__ import annotations

from redjob.clock import Clock
from redjob.worker.attempt import Attempt

WAIT_S = 30.0  # for the others to end, before such an attempt is begun beside them after all
ALONE_S = 30.0  # from its beginning on: what lives that long is not what kills at once


class Quarantine:
    """Whether attempts may start, and whether more may be taken. Used from one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._inside: Attempt | None = None
        self._open_at = float("inf")  # monotonic s, once the one inside has begun
        self._empty_by: float | None = None  # monotonic s: what runs is waited for until then

    def is_closed(self, running: int) -> bool:
        """Whether to take no more jobs for now."""
        now = self._clock.monotonic()
        if self._inside is not None:
            return now < self._open_at
        return self._empty_by is not None and now < self._empty_by and running > 0

    def enters(self, attempt: Attempt, running: int) -> bool:
        """Whether an attempt is to begin alone: nothing may run, and nothing else may start from here on."""
        if self._inside is not None or running > 0 or not is_suspect(attempt):
            return False
        self._inside, self._open_at, self._empty_by = attempt, float("inf"), None
        return True

    def admits(self, attempt: Attempt, running: int) -> bool:
        """Whether an attempt may start beside others; one that may not is to be handed back."""
        if self.is_closed(running) and self._inside is not None:
            return False
        if not is_suspect(attempt):
            return True
        now = self._clock.monotonic()
        if self._empty_by is None:
            self._empty_by = now + WAIT_S
        if now < self._empty_by:
            return False
        self._empty_by = None
        return True

    def began(self, attempt: Attempt) -> None:
        """The one inside begins."""
        if self._inside is attempt:
            self._open_at = self._clock.monotonic() + ALONE_S

    def ended(self, attempt: Attempt) -> None:
        """An attempt runs no more, or was given back."""
        if self._inside is attempt:
            self._inside = None


def is_suspect(attempt: Attempt) -> bool:
    """Whether one more crash of its process would make the job dead."""
    crashes = attempt.past.crashes
    return crashes > 0 and crashes + 1 >= attempt.record.options.max_crashes
