"""Time as a value that is passed in: wall milliseconds for records, monotonic seconds for waiting.

Lowest layer of the chain: imports nothing of redjob.  Nothing above it calls ``time`` itself, so
that a test decides what time it is.
"""

import time
from typing import Protocol

_NS_PER_MS = 1_000_000


class Clock(Protocol):
    """The two readings of time that redjob uses, and how synchronous code waits.

    `SystemClock` is the real one, ``redjob.testing.ManualClock`` the one that tests move.
    """

    def wall_ms(self) -> int:
        """Return Unix time in milliseconds: for what is stored or compared with stored times.

        It may jump, also backwards, when the machine's clock is set.
        """
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment: for differences, deadlines and waits.

        It never falls.  Its value means nothing in another process.
        """
        ...

    def sleep(self, seconds: float) -> None:
        """Block this thread for `seconds`; async code awaits its event loop instead."""
        ...


class SystemClock:
    """The clock of this machine."""

    __slots__ = ()

    def wall_ms(self) -> int:
        """Return Unix time in milliseconds, rounded down: a time is never reported early."""
        return time.time_ns() // _NS_PER_MS

    def monotonic(self) -> float:
        """Return seconds of the system's monotonic clock."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block this thread for `seconds`."""
        time.sleep(seconds)
