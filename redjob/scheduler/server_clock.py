"""Redis' clock as seen from here: what "due" means, and never ahead of it."""

from __future__ import annotations

import math

from redjob.clock import Clock

_KEEP_S = 5.0


class ServerClock:
    """The server's wall clock in ms, estimated from below.

    A reply that came in at `received` and says t proves that the server's clock was at least t by
    then, so `t - received` is a lower bound of the offset; the highest of the last seconds is the
    closest, off by the way of the quickest reply. What is asked for by this clock is due. The upper
    bound, from `sent`, serves to notice that the server's clock was set back.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lower = float("-inf")
        self._now = self._before = float(
            "-inf"
        )  # the bound in this stretch of _KEEP_S and the last
        self._turned_at = float("-inf")

    def learn(self, server_ms: float, *, sent: float, received: float, exact: bool = False) -> None:
        """Take in one reading between two monotonic moments (s); whole ms unless it is `exact`."""
        lower = server_ms - received * 1000
        upper = server_ms + (0.0 if exact else 1.0) - sent * 1000
        if upper < self._lower:
            self._now = self._before = float("-inf")
        if received - self._turned_at > _KEEP_S:
            self._before, self._now = self._now, float("-inf")
            self._turned_at = received
        self._now = max(self._now, lower)
        self._lower = max(self._now, self._before)

    def now_ms(self) -> int:
        """Return the server's time in whole ms, as scripts see it, at the earliest that it can be."""
        return math.floor(self._clock.monotonic() * 1000 + self._lower)

    def wait_s(self, at_ms: int) -> float:
        """Return how many seconds from now `now_ms` will be `at_ms`, at least 0."""
        return max(0.0, (at_ms - self._lower) / 1000 - self._clock.monotonic())
