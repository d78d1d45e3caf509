"""The public test kit: what an application's tests, and redjob's own, put in the place of the world."""

import math

_MS_PER_S = 1000


class ManualClock:
    """A clock that stands still until a test moves it; it has the shape of `redjob.clock.Clock`.

    `wall_ms` is Unix time in milliseconds, `monotonic_s` seconds since an arbitrary moment.
    """

    __slots__ = ("_monotonic_ms", "_wall_ms")

    def __init__(self, wall_ms: int = 1_790_000_000_000, monotonic_s: int = 1000) -> None:
        self._wall_ms = wall_ms
        # Kept as an integer: a thousand steps of 1 ms are exactly one second.
        self._monotonic_ms = monotonic_s * _MS_PER_S

    def wall_ms(self) -> int:
        """Return the Unix time that the test has set, in milliseconds."""
        return self._wall_ms

    def monotonic(self) -> float:
        """Return the seconds that the test has let pass, from an arbitrary start."""
        return self._monotonic_ms / _MS_PER_S

    def advance(self, ms: int) -> None:
        """Let `ms` milliseconds pass on both readings.

        Raises ValueError for a negative time: real time never goes back, a wall clock does that by
        `shift_wall`.
        """
        if ms < 0:
            message = f"cannot advance by {ms} ms; use shift_wall to set the wall clock back"
            raise ValueError(message)
        self._wall_ms += ms
        self._monotonic_ms += ms

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass at once, rounded up to milliseconds: the sleeper never wakes early."""
        self.advance(math.ceil(seconds * _MS_PER_S))

    def shift_wall(self, ms: int) -> None:
        """Set the wall clock `ms` milliseconds on, or back if negative, while no time passes."""
        self._wall_ms += ms
