"""A server's clock as seen from here, between two readings of it."""

from __future__ import annotations

from redjob.clock import Clock

_EVERY_S = 60.0


class ServerTime:
    """The server's wall time, from monotonic time: stepping this machine's clock changes nothing."""

    __slots__ = ("_clock", "_epoch_ms", "_read_at")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._epoch_ms: float | None = None
        self._read_at = 0.0

    @property
    def is_old(self) -> bool:
        """Whether it should be read again: two clocks drift apart by some ms a minute."""
        return self._epoch_ms is None or self._clock.monotonic() - self._read_at > _EVERY_S

    def learn(self, reply: tuple[bytes, bytes] | list[bytes], sent: float) -> None:
        """Take in a reply of TIME to what was sent at a monotonic moment (s)."""
        now = self._clock.monotonic()
        seconds, micros = reply
        self._epoch_ms = int(seconds) * 1000 + int(micros) / 1000 - (sent + now) * 500
        self._read_at = now

    def now_ms(self) -> int:
        """Return the server's wall ms; this machine's as long as the server has not been asked."""
        if self._epoch_ms is None:
            return self._clock.wall_ms()
        return int(self._clock.monotonic() * 1000 + self._epoch_ms)
