"""A server's clock as seen from here, between two readings of it."""

from __future__ import annotations

from redjob.clock import Clock

_EVERY_S = 60.0
_DRIFT_MS = 0.2  # a second: two quartz clocks, and the adjusting of each


class ServerTime:
    """The server's wall time, from monotonic time: stepping this machine's clock changes nothing."""

    __slots__ = ("_asked_at", "_clock", "_epoch_ms", "_read_at", "_way_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._epoch_ms: float | None = None
        self._asked_at = self._read_at = 0.0
        self._way_ms = (
            0.0  # how long the reading took that counts: it is off by half of that at most
        )

    @property
    def is_known(self) -> bool:
        """Whether the server has ever been asked."""
        return self._epoch_ms is not None

    @property
    def is_old(self) -> bool:
        """Whether it should be read again: two clocks drift apart by some ms a minute."""
        return self._epoch_ms is None or self._clock.monotonic() - self._asked_at > _EVERY_S

    def learn(self, reply: tuple[bytes, bytes] | list[bytes], sent: float) -> None:
        """Take in a reply of TIME to what was sent at a monotonic moment (s).

        One that took its time says less than an older one that was quick, until that has drifted as far.
        """
        now = self._asked_at = self._clock.monotonic()
        way_ms = (now - sent) * 1000
        drift_ms = (now - self._read_at) * _DRIFT_MS
        if self._epoch_ms is not None and way_ms / 2 > self._way_ms / 2 + drift_ms:
            return
        seconds, micros = reply
        self._epoch_ms = int(seconds) * 1000 + int(micros) / 1000 - (sent + now) * 500
        self._read_at, self._way_ms = now, way_ms

    def now_ms(self) -> int:
        """Return the server's wall ms; this machine's as long as the server has not been asked."""
        if self._epoch_ms is None:
            return self._clock.wall_ms()
        return int(self._clock.monotonic() * 1000 + self._epoch_ms)
