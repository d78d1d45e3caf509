"""Trouble with Redis, told once: what every loop of the node does when a step fails."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from redjob.clock import Clock
from redjob.errors import RedjobError, StoreFull, StoreUnavailable

log = logging.getLogger("redjob.scheduler")

_FIRST_WAIT_S = 0.02
_LAST_WAIT_S = 0.25
_SAY_EVERY_S = 10.0


class Outage:
    """Whether Redis is away: one line when it goes, one when it is back.

    `on_away` is called at every failure that says so: nothing that was read before holds any more.
    """

    def __init__(self, clock: Clock, rng: random.Random, *, on_away: Callable[[], None]) -> None:
        self._clock = clock
        self._rng = rng
        self._on_away = on_away
        self._since: float | None = None
        self._said: dict[str, float] = {}

    @property
    def is_away(self) -> bool:
        """Whether the last thing that was heard of Redis is that it is away."""
        return self._since is not None

    def failed(self, exc: RedjobError) -> None:
        """Take note of a failed exchange."""
        if not isinstance(exc, StoreUnavailable):
            full = isinstance(exc, StoreFull)
            self.say("redis_full" if full else "redis_refused", f"{exc.code} reason={exc}")
            return
        if self._since is None:
            self._since = self._clock.monotonic()
            log.warning("redis_away reason=%s", exc.reason)
        self._on_away()

    def worked(self) -> None:
        """Take note of an exchange that went well."""
        if self._since is not None:
            log.warning("redis_back after_s=%.2f", self._clock.monotonic() - self._since)
            self._since = None

    def say(self, event: str, text: str, *, with_trace: bool = False) -> None:
        """Log what comes up again and again, each event at most every 10 s."""
        now = self._clock.monotonic()
        if now - self._said.get(event, float("-inf")) >= _SAY_EVERY_S:
            self._said[event] = now
            log.error("%s cause=%s", event, text, exc_info=with_trace)

    async def keep_going(self, step: Callable[[], Awaitable[float]]) -> None:
        """Repeat a step that returns how long to wait (s) for the next; a failing one backs off."""
        delay_s = _FIRST_WAIT_S
        while True:
            try:
                wait_s = await step()
                delay_s = _FIRST_WAIT_S
            except RedjobError as exc:
                self.failed(exc)
                wait_s = self._rng.uniform(_FIRST_WAIT_S, delay_s)
                delay_s = min(_LAST_WAIT_S, delay_s * 2)
            except Exception as exc:  # noqa: BLE001 - an owner that ends fires nothing at all
                self.say("loop_failed", f"{type(exc).__name__} reason={exc}", with_trace=True)
                wait_s = _LAST_WAIT_S
            await asyncio.sleep(wait_s)
