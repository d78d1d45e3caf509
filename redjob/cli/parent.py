"""A command that is several processes: what its children are told, and how signals reach them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence

from redjob.config import Connection
from redjob.dev import Child, run_children


def environment_of(connection: Connection, url: str) -> dict[str, str]:
    """The connection's options, as the children read them: a URL may hold a password, arguments show."""
    found = {"REDJOB_REDIS_URL": url, "REDJOB_NAMESPACE": connection.namespace}
    if connection.partitions is not None:
        found["REDJOB_PARTITIONS"] = str(connection.partitions)
    if connection.allow_eviction:
        found["REDJOB_ALLOW_EVICTION"] = "1"
    if connection.postgres_url is not None:
        found["REDJOB_POSTGRES_URL"] = connection.postgres_url
        found["REDJOB_POSTGRES_SCHEMA"] = connection.postgres_schema
    return found


async def run_until_signal(children: Sequence[Child]) -> int:
    """Run children until the first signal, and then until all have drained or the second one comes.

    Returns the exit code. Raises WrongUse.
    """
    stop = asyncio.Event()
    code = 0

    def on_signal(number: int) -> None:
        nonlocal code
        if stop.is_set():
            code = 128 + number
            for child in children:
                child.kill()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    await run_children(children, stop)
    return code
