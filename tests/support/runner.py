"""One redjob service as a process of its own, with the settings of a test: `python -m` this.

The command line builds the same nodes; what it does not offer are times short enough for a test,
scripts with a planted bug, and a wall clock that is off.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from random import Random
from typing import TYPE_CHECKING, Literal

import msgspec

from redjob.cli.logs import KeyValueFormatter
from redjob.cli.service import end_with_stdin, run_until
from redjob.clock import SystemClock
from redjob.scheduler import SchedulerNode
from redjob.store.aio import AsyncStore
from redjob.store.settings import settings_from_url
from redjob.sweeper import SweeperNode
from redjob.worker.node import WorkerNode
from tests.support.plants import plant
from tests.support.settings import RunSettings
from tests.support.tasks import app_of

if TYPE_CHECKING:
    from redjob.clock import Clock

log = logging.getLogger("redjob.test")

Role = Literal["worker", "scheduler", "sweeper"]


class ShiftedClock(SystemClock):
    """A machine whose wall clock was set wrong."""

    __slots__ = ("_shift_ms",)

    def __init__(self, shift_ms: int) -> None:
        self._shift_ms = shift_ms

    def wall_ms(self) -> int:
        """Return the wrong Unix time, in milliseconds."""
        return super().wall_ms() + self._shift_ms


async def serve(role: Role, settings: RunSettings) -> None:
    """Run a service until SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    log.info("serving role=%s", role)  # from here on it stops in order
    clock: Clock = ShiftedClock(settings.clock_shift_ms)
    store = AsyncStore(
        settings_from_url(settings.url),
        settings.namespace,
        clock=clock,
        scripts=plant(settings.plant),
    )
    try:
        if role == "scheduler":
            await run_until(stop, SchedulerNode(store, settings.scheduler()).run())
        elif role == "sweeper":
            node = SweeperNode(store, settings.sweeper(), rng=Random(1))
            await run_until(stop, node.run())
        else:
            await _serve_worker(settings, store, clock, stop)
    finally:
        await store.aclose()


async def _serve_worker(
    settings: RunSettings, store: AsyncStore, clock: Clock, stop: asyncio.Event
) -> None:
    node = WorkerNode(app_of(settings), settings.worker(), store=store, clock=clock)
    running = asyncio.create_task(node.run())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    node.stop()
    await running


def log_to_stderr() -> None:
    """Log as the command line does."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(KeyValueFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def main() -> None:
    """Run the role and the settings that the command line names."""
    role, text = sys.argv[1:]
    settings = msgspec.json.decode(text, type=RunSettings)
    log_to_stderr()
    end_with_stdin(settings.stop_grace_s, SystemClock())
    assert role in {"worker", "scheduler", "sweeper"}
    asyncio.run(serve(role, settings))  # type: ignore[arg-type] # as asserted


if __name__ == "__main__":
    main()
