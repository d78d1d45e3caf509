"""Waits at the bells while there is nothing to do: who enqueues or fires puts a token into a list."""

from __future__ import annotations

import asyncio
import logging

from redjob.calls.work_reads import bell_command, ring_again
from redjob.errors import RedjobError
from redjob.store.aio import AsyncLink
from redjob.worker.fetch import Fetcher
from redjob.worker.slots import Slots
from redjob.worker.workplace import Workplace

log = logging.getLogger("redjob.worker")

BLOCK_S = 1  # less than the reply timeout of a connection
_PAUSE_S = 0.2


class Bells:
    """Listens on a connection of its own, only while slots are free and no work is known.

    So a token is drawn by who can use it. One that is drawn while another reply fills the last slot
    is given back.
    """

    def __init__(
        self,
        place: Workplace,
        fetcher: Fetcher,
        slots: Slots,
    ) -> None:
        parts, queues = place.keys.parts, place.queues
        self._store = place.store
        self._fetcher = fetcher
        self._slots = slots
        self._command = bell_command(parts, queues, BLOCK_S)
        self._partitions = {
            part.queue(queue).bell.encode(): part.index for part in parts for queue in queues
        }

    async def run(self) -> None:
        """Tell the fetcher of every token."""
        link = self._store.dedicated()
        try:
            while True:
                await self._fetcher.wait_idle()
                await self.listen_once(link)
        finally:
            link.close()

    async def listen_once(self, link: AsyncLink) -> None:
        """Wait for one token, at most BLOCK_S."""
        try:
            reply = await self._store.block(link, self._command, BLOCK_S)
        except RedjobError as exc:  # the looks go on, and they say what is wrong
            log.debug("bells_silent reason=%s", exc)
            await asyncio.sleep(_PAUSE_S)
            return
        if reply is None:
            return
        bell: bytes = reply[0]
        if self._slots.free:
            self._fetcher.add(self._partitions[bell])
        else:
            await self._store.query(ring_again(bell.decode()))
