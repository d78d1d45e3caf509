"""The demo's processes: a server, a scheduler, a sweeper and two workers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from redjob.calls.overview import present, workers_seen
from redjob.config import PREFIX
from redjob.demo.trace import VARIABLE
from redjob.dev import Child, ChildSpec, run_children
from redjob.errors import RedjobError
from redjob.store.aio import AsyncStore
from redjob.store.settings import settings_from_url

WORKERS = 2
LEASE_S = 3.0  # short, so that the killed worker's job comes back while one looks on
_READY_S = 20.0


@dataclass
class Stack:
    """What runs, and what it has said."""

    url: str
    trace: Path
    children: list[Child] = field(default_factory=list[Child])
    said: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def hear(self, name: str, line: str) -> None:
        """Take one line of a process' output."""
        self.said.append((name, line))

    def worker_of(self, pid: int) -> Child | None:
        """The worker that runs under this pid."""
        return next((child for child in self.children if child.pid == pid), None)


@asynccontextmanager
async def running_stack(url: str, trace: Path) -> AsyncGenerator[Stack]:
    """Run all processes and wait until they are ready. Raises TimeoutError."""
    stack = Stack(url, trace)
    environment = {name: "" for name in os.environ if name.startswith(PREFIX)}  # not the user's
    environment |= {"REDJOB_REDIS_URL": url, "REDJOB_LEASE_S": str(LEASE_S), VARIABLE: str(trace)}
    specs = [
        ChildSpec("scheduler", ["scheduler"], environment),
        ChildSpec("sweeper", ["sweeper"], environment),
    ]
    for number in range(1, WORKERS + 1):
        command = ["worker", "redjob.demo.app:app", "--concurrency", "16"]
        specs.append(ChildSpec(f"worker {number}", command, environment))
    stack.children = [Child(spec, stack.hear) for spec in specs]
    stop = asyncio.Event()
    running = asyncio.create_task(run_children(stack.children, stop))
    try:
        await _ready(stack, running)
        yield stack
    finally:
        stop.set()
        await running


async def _ready(stack: Stack, running: asyncio.Task[None]) -> None:
    store = AsyncStore(settings_from_url(stack.url))
    try:
        async with asyncio.timeout(_READY_S):
            while not await _is_ready(store):
                if running.done():
                    running.result()
                await asyncio.sleep(0.05)
    finally:
        await store.aclose()


async def _is_ready(store: AsyncStore) -> bool:
    try:
        keys = await store.open()
        there = await store.query(present(store.namespace))
        workers = await store.query(workers_seen(store.namespace))
    except RedjobError:
        return False
    return len(there.owners) == keys.partitions and len(workers) == WORKERS
