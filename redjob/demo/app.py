"""The demo's tasks: an ordinary app, but each start and end leaves a line in the trace."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from redjob import Redjob, Retry, current_job
from redjob.demo.trace import leave

QUEUE = "demo"
FLAKY_FAILS = 2
HOPELESS_TRIES = 3
_QUICKLY = Retry(max_attempts=5, base_s=0.2, factor=1.0, jitter="none")
_LONG_S = 60.0

app = Redjob.from_env()


@contextmanager
def _traced() -> Generator[int]:
    """Leave a line at the start and, unless the task raises or is killed, one at the end."""
    job = current_job()
    leave("start", job.id, job.attempt)
    yield job.attempt
    leave("end", job.id, job.attempt)


@app.task(name="demo.quick", queue=QUEUE)
async def quick(number: int) -> int:
    """Do a little and return it."""
    with _traced():
        return number * 2


@app.task(name="demo.flaky", queue=QUEUE, retry=_QUICKLY)
async def flaky() -> str:
    """Fail twice, then succeed."""
    with _traced() as attempt:
        if attempt <= FLAKY_FAILS:
            raise ConnectionError(f"attempt {attempt} fails on purpose")
        return "at last"


@app.task(name="demo.hopeless", queue=QUEUE)
def hopeless() -> None:
    """Fail always. An ordinary function: it runs in a thread."""
    with _traced():
        raise ValueError("fails on purpose, always")


@app.task(name="demo.long", queue=QUEUE)
async def long() -> str:
    """Take so long at first that its worker can be killed; the next attempt is quick."""
    with _traced() as attempt:
        if attempt == 1:
            await asyncio.sleep(_LONG_S)
        return f"done by attempt {attempt}"
