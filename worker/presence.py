"""Shows that this worker is there, for people to look at; nothing depends on it."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from redjob.calls.work_reads import hide_worker, queues_unseen, show_worker
from redjob.errors import RedjobError
from redjob.worker.workplace import Workplace

log = logging.getLogger("redjob.worker")

EVERY_S = 5.0
_FORGET_MS = 3_600_000
_HIDE_S = 1.0


class Presence:
    """One member of the list of workers, kept up to date."""

    def __init__(self, place: Workplace) -> None:
        self._store = place.store
        self._keys = place.keys
        self._worker = place.worker

    async def run(self) -> None:
        """Show it every 5 s."""
        while True:
            with contextlib.suppress(RedjobError):
                await self.show()
            await asyncio.sleep(EVERY_S)

    async def show(self) -> None:
        """Write the time of now. Raises StoreUnavailable."""
        now_ms = self._store.now_ms()
        await self._store.query(show_worker(self._keys, self._worker, now_ms, _FORGET_MS))

    async def hide(self) -> None:
        """Take it off the list, if Redis is there."""
        with contextlib.suppress(RedjobError):
            await self._store.query(hide_worker(self._keys, self._worker), deadline_s=_HIDE_S)

    async def warn_of_unknown(self, queues: tuple[str, ...], declared: set[str]) -> None:
        """Warn of queues that no task declares and no partition has seen: likely a slip of the pen.

        Raises StoreUnavailable.
        """
        unknown = [queue for queue in queues if queue not in declared]
        if not unknown:
            return
        found = await self._store.query_all(
            [queues_unseen(part, unknown) for part in self._keys.parts]
        )
        for queue in set(unknown).intersection(*found):
            log.warning(
                "unknown_queue queue=%s reason=no task declares it and it never had a job", queue
            )
