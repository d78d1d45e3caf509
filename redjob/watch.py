"""The ends of jobs, heard for all who wait in one event loop: one blocking read a partition.

However many wait, there is one connection for each partition that somebody waits in.  A watch goes
on for `_LINGER_S` after the last one has left, since the next is likely to come soon.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from redjob.errors import RedjobError
from redjob.waiting import LOOK_EVERY_S, ended, listen, read_done

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from redjob.keys import PartitionKeys
    from redjob.store.aio import AsyncStore, Dedicated

_LINGER_S = 5.0
_RENEW_EVERY_S = 20.0  # a third of the TTL of `waiters`


class DoneWatch:
    """Tells who waits for a job when its end is announced."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._watches: dict[int, _Watch] = {}

    @asynccontextmanager
    async def job(self, part: PartitionKeys, job_id: str) -> AsyncGenerator[asyncio.Event]:
        """Listen for one job: an end after this point sets the event that is given.

        If Redis does not answer soon, the event is given all the same: announcements are a
        quicker way and not the only one.
        """
        watch = self._watches.get(part.index)
        if watch is None:
            watch = self._watches[part.index] = _Watch(self._store, part)
            watch.task = asyncio.create_task(self._run(watch), name=f"redjob-done-{part.index}")
        event = asyncio.Event()
        watch.events.setdefault(job_id, set()).add(event)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await watch.listening.wait()
            yield event
        finally:
            watch.forget(job_id, event)

    async def aclose(self) -> None:
        """Stop listening; who still waits has to look by himself."""
        tasks = [watch.task for watch in self._watches.values() if watch.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._watches.clear()  # one that never began has not left by itself

    async def _run(self, watch: _Watch) -> None:
        link = self._store.dedicated(watch.part)
        try:
            while watch.wanted(self._store.clock.monotonic()):
                try:
                    await watch.listen(link)
                except RedjobError:
                    # Those who wait look by calls, which say what is wrong with Redis.
                    await asyncio.sleep(LOOK_EVERY_S / 4)
        finally:
            # In the same step as the last `wanted`: nobody can have joined in between.
            self._watches.pop(watch.part.index, None)
            link.close()


class _Watch:
    """Who waits in one partition, and the reading of its `done`."""

    def __init__(self, store: AsyncStore, part: PartitionKeys) -> None:
        self.part = part
        self.events: dict[str, set[asyncio.Event]] = {}
        self.listening = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self._store = store
        self._last_wanted = store.clock.monotonic()

    def wanted(self, now: float) -> bool:
        """Whether somebody waits, or has waited just now."""
        if self.events:
            self._last_wanted = now
        return now - self._last_wanted < _LINGER_S

    def forget(self, job_id: str, event: asyncio.Event) -> None:
        """Take out one who waited."""
        others = self.events[job_id]
        others.discard(event)
        if not others:
            del self.events[job_id]

    async def listen(self, link: Dedicated) -> None:
        """Read ends until it is time to renew `waiters`. Raises RedjobError."""
        clock = self._store.clock
        position = await self._store.query(listen(self.part), deadline_s=LOOK_EVERY_S)
        self.listening.set()
        renew_at = clock.monotonic() + _RENEW_EVERY_S
        while (now := clock.monotonic()) < renew_at and self.wanted(now):
            command = read_done(self.part, position, LOOK_EVERY_S)
            raw = await self._store.block(link, command, LOOK_EVERY_S)
            position, ids = ended(raw, position)
            for job_id in ids:
                for event in self.events.get(job_id, ()):
                    event.set()
