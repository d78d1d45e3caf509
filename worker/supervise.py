"""Loops that outlive their errors, and tasks that nobody waits for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from redjob.clock import Clock

log = logging.getLogger("redjob.worker")

_FIRST_PAUSE_S = 0.1
_LAST_PAUSE_S = 5.0
_CALM_S = 30.0  # a loop that ran this long starts over with a short pause


async def supervise(name: str, loop: Callable[[], Awaitable[None]], clock: Clock) -> None:
    """Run a loop until it returns; when it breaks, log why and start it again with back-off."""
    pause_s = _FIRST_PAUSE_S
    while True:
        began_s = clock.monotonic()
        try:
            await loop()
        except Exception:
            log.exception("loop_broke loop=%s", name)
        else:
            return
        if clock.monotonic() - began_s > _CALM_S:
            pause_s = _FIRST_PAUSE_S
        await asyncio.sleep(pause_s)
        pause_s = min(_LAST_PAUSE_S, pause_s * 2)


class Background:
    """Tasks that run beside the loops; an error in one is logged."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Run a coroutine to its end."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def cancel(self) -> None:
        """Stop all of them."""
        for task in self._tasks:
            task.cancel()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background_broke task=%s", task.get_name(), exc_info=error)
