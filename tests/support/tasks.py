"""The tasks of chaos runs: each writes down that it began and how it ended; under runner."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from redjob import Redjob, current_job
from tests.support.history_files import Effects

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.support.settings import RunSettings


class Planned(Exception):
    """Raised by a task that is to fail."""


def released(settings: RunSettings) -> Path:
    """The file that lets `hold` end."""
    return Path(f"{settings.effects}.released")


def app_of(settings: RunSettings) -> Redjob:
    """An app whose tasks write to the file of the run."""
    app = Redjob(settings.url, namespace=settings.namespace)
    effects = Effects(settings.effects)

    @app.task(name="work")
    async def work(number: int, ms: int = 0, fails: int = 0) -> int:
        """Take `ms` of an event loop's time; raise in the first `fails` attempts."""
        with _written(effects, number):
            await asyncio.sleep(ms / 1000)
            _fail(fails)
        return number

    @app.task(name="work_in_thread")
    def work_in_thread(number: int, ms: int = 0, fails: int = 0) -> int:
        """The same, in a thread."""
        with _written(effects, number):
            time.sleep(ms / 1000)
            _fail(fails)
        return number

    @app.task(name="hold")
    async def hold(number: int) -> int:
        """Run until the test says so: until there is a file beside that of the effects."""
        with _written(effects, number):
            while not released(settings).exists():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0.02)
        return number

    @app.task(name="kill_itself")
    async def kill_itself(number: int, times: int = 1) -> int:
        """Kill the worker's process in the first `times` attempts."""
        with _written(effects, number):
            if current_job().attempt <= times:
                os.kill(os.getpid(), signal.SIGKILL)
        return number

    @app.task(name="crash")
    def crash(number: int, text: str = "") -> int:
        """Crash the interpreter as broken C code does."""
        with _written(effects, number):
            ctypes.string_at(0)
        return number

    @app.task(name="raise_text")
    async def raise_text(number: int, points: list[int]) -> None:
        """Raise an error with any text, also what no encoding knows."""
        with _written(effects, number):
            raise Planned("".join(map(chr, points)))

    @app.task(name="echo")
    async def echo(number: int, value: object = None) -> object:
        """Return what was passed."""
        with _written(effects, number):
            return value

    return app


@contextmanager
def _written(effects: Effects, number: int) -> Generator[None]:
    job = current_job()
    effects.began(job.id, job.attempt, number)
    try:
        yield
    except asyncio.CancelledError:
        effects.ended(job.id, job.attempt, "interrupted")
        raise
    except BaseException:
        effects.ended(job.id, job.attempt, "raised")
        raise
    effects.ended(job.id, job.attempt, "returned")


def _fail(fails: int) -> None:
    attempt = current_job().attempt
    if attempt <= fails:
        raise Planned(f"attempt {attempt} of {fails} that fail")
