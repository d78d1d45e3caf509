"""Waits at the bells while there is nothing to do: who enqueues or fires puts a token into a list."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Sequence

from redjob.calls.call import Arg
from redjob.calls.overview import workers_seen
from redjob.calls.work_reads import bell_command, ring_again
from redjob.errors import RedjobError
from redjob.keys import PartitionKeys
from redjob.partitions import rendezvous_among
from redjob.store.aio import Dedicated
from redjob.worker.fetch import Fetcher
from redjob.worker.presence import EVERY_S
from redjob.worker.slots import Slots
from redjob.worker.workplace import Workplace

log = logging.getLogger("redjob.worker")

BLOCK_S = 1  # less than the reply timeout of a connection
_PAUSE_S = 0.2
_CHOOSE_EVERY_S = 2 * EVERY_S
_ALIVE_MS = int(3 * EVERY_S * 1000)
_EARS = 3  # workers at each bell, so that the end of one leaves no partition unheard
_MOST = 16  # connections of one worker, where others share the partitions with it


class Bells:
    """Listens on connections of its own, only while slots are free and no work is known.

    So a token is drawn by who can use it. One that is drawn while another reply fills the last slot
    is given back. On a single Redis one read covers all partitions. On a cluster a read covers one
    partition, so each worker listens at some of them, chosen so that every partition has listeners.
    """

    def __init__(
        self,
        place: Workplace,
        fetcher: Fetcher,
        slots: Slots,
    ) -> None:
        self._store = place.store
        self._keys = place.keys
        self._queues = place.queues
        self._worker = place.worker
        self._fetcher = fetcher
        self._slots = slots
        self._partitions = {
            part.queue(queue).bell.encode(): part.index
            for part in place.keys.parts
            for queue in place.queues
        }
        self._listeners: dict[int, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Tell the fetcher of every token."""
        if self._store.is_one_server:
            await self._listen(self._keys.parts)
        try:
            while True:
                self._listen_at(await self._choose())
                await asyncio.sleep(_CHOOSE_EVERY_S)
        finally:
            self._listen_at(set())

    async def _choose(self) -> set[int]:
        """Choose the partitions to listen at: all if this worker is alone."""
        alive = {self._worker}
        with contextlib.suppress(RedjobError):
            since_ms = self._store.now_ms() - _ALIVE_MS
            seen = await self._store.query(workers_seen(self._keys.namespace), deadline_s=_PAUSE_S)
            alive |= {name for name, seen_ms in seen if seen_ms >= since_ms}
        workers = sorted(alive)
        ears = max(_EARS, math.ceil(_MOST * len(workers) / self._keys.partitions))
        return {
            part.index
            for part in self._keys.parts
            if self._worker in rendezvous_among(f"p{part.index}", workers, ears)
        }

    def _listen_at(self, chosen: set[int]) -> None:
        for index in self._listeners.keys() - chosen:
            self._listeners.pop(index).cancel()
        for index in chosen - self._listeners.keys():
            listening = self._listen([self._keys.parts[index]])
            self._listeners[index] = asyncio.create_task(listening, name=f"redjob-bell-{index}")

    async def _listen(self, parts: Sequence[PartitionKeys]) -> None:
        at = self._store.dedicated(parts[0])
        command = bell_command(parts, self._queues, BLOCK_S)
        try:
            while True:
                await self._fetcher.wait_idle()
                await self.listen_once(at, command)
        finally:
            at.close()

    async def listen_once(self, at: Dedicated, command: tuple[Arg, ...]) -> None:
        """Wait for one token, at most BLOCK_S."""
        try:
            reply = await self._store.block(at, command, BLOCK_S)
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
