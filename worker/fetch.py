"""Which partition to ask, for how many jobs, and how a take gets its answer; beside wake, before intake."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from redjob.calls.call import Call
from redjob.calls.work import Taken, take
from redjob.calls.work_reads import work_waiting
from redjob.errors import Hold, NotReady, Rebuilding, RedjobError, StoreUnavailable
from redjob.ids import new_token
from redjob.keys import PartitionKeys
from redjob.store.routes import Address
from redjob.worker.slots import Slots
from redjob.worker.workplace import Workplace

log = logging.getLogger("redjob.worker")

TAKERS = 2  # takes under way at a server: Redis works at one while Python works at the other
MOST = 128  # jobs a take: about 2 ms of script
_REPLY_FULL = 1 << 19  # bytes of records: take may have stopped for the size of its reply
_FIRST_PAUSE_S = 0.05
_LAST_PAUSE_S = 1.0
_SILENT_S = 2.0  # for the answer of one server of several
_SLOWER = 1.25  # the pause stays near a fifth of the time it has lasted
_SAY_EVERY_S = 5.0

Accept = Callable[[PartitionKeys, Taken, int, float], Awaitable[int]]


class _Unanswered(NamedTuple):
    """A take that may have been carried out: its request id, and when it was first sent (monotonic)."""

    tag: str
    sent_s: float


class Fetcher:
    """Keeps the slots filled. A partition is `pending` while it may have work.

    One that is not pending was empty when it was last asked, and every entry since then rang a bell
    or will be seen by the next look.
    """

    def __init__(
        self,
        place: Workplace,
        slots: Slots,
        accept: Accept,
        follow: Callable[[PartitionKeys, Taken], None],
        behind: Callable[[], bool],
    ) -> None:
        """Build it; `accept` and `follow` hear each reply, while `behind` says so nothing is taken."""
        self._clock = place.clock
        self.stopping = False
        self.last_tick = self._clock.monotonic()
        self._place = place
        self._store = place.store
        self._keys = place.keys
        self._slots = slots
        self._accept = accept
        self._follow = follow
        self._behind = behind
        self._pending: dict[int, None] = dict.fromkeys(range(place.keys.partitions))
        self._busy: set[int] = set()
        self._unanswered: dict[int, _Unanswered] = {}
        self._pauses: dict[int, float] = {}  # of partitions that did not answer: how long they wait
        self._waiting: set[int] = set()  # those whose pause is not over
        self._said_s = self._clock.monotonic() - _SAY_EVERY_S
        self._silent: set[Address | None] = set()  # servers whose last take had no answer
        self._next_guess = 0

    def add(self, index: int) -> None:
        """A partition may have work."""
        if index not in self._waiting:
            self._pending[index] = None
            self._slots.changed.set()

    def stop(self) -> None:
        """Take no more jobs; takes that were sent are still answered for."""
        self.stopping = True
        self._slots.changed.set()

    @property
    def is_taking(self) -> bool:
        """Whether a take is under way."""
        return bool(self._busy)

    @property
    def takers(self) -> int:
        """How many `run_taker` are of use."""
        return TAKERS * len(self._store.servers)

    async def run_taker(self) -> None:
        """Take jobs until stopped; several of these may run at once."""
        while await self.take_next():
            pass

    async def take_next(self) -> bool:
        """Wait for a partition and a free slot, and take once. False when stopped."""
        while (index := self._choose()) is None:
            if self.stopping and not self._unanswered:
                return False
            self._slots.changed.clear()
            await self._slots.changed.wait()
        room = 0 if self.stopping else self._slots.reserve(self._most(index))
        self._busy.add(index)
        used = 0
        try:
            used = await self._take(index, room)
        finally:
            self._busy.discard(index)
            self._slots.release(room - used)
        return True

    async def look(self) -> None:
        """Find partitions that have work although no bell told so."""
        self.last_tick = self._clock.monotonic()
        if self.stopping or not self._slots.free:
            return
        waits = await self._store.query_each(
            [work_waiting(part, self._place.queues) for part in self._keys.parts]
        )
        answered = False
        for index, waiting in enumerate(waits):
            if isinstance(waiting, StoreUnavailable):
                continue  # said by the store; last_tick tells the rest
            answered = True
            if isinstance(waiting, RedjobError):  # a damaged key: the take says more
                self._say("look", waiting)
            if waiting:
                self.add(index)
        if answered:
            self.last_tick = self._clock.monotonic()

    async def wait_idle(self) -> None:
        """Wait until slots are free and nothing is known to be there for them."""
        while self.stopping or self._pending or self._busy or not self._slots.free:
            self._slots.changed.clear()
            await self._slots.changed.wait()

    def _choose(self) -> int | None:
        if self.stopping:
            open_ones = self._unanswered.keys() - self._waiting - self._busy
            return next(iter(open_ones), None)
        if not self._slots.free or self._behind():
            return None
        full = self._full_servers()
        for index in self._pending:
            if index not in self._busy and self._server_of(index) not in full:
                del self._pending[index]
                return index
        return None

    def _most(self, index: int) -> int:
        """For how many jobs to ask: of several servers one that is silent may not tie up all slots."""
        return 1 if self._server_of(index) in self._silent else MOST

    async def _call(self, call: Call[Taken], index: int) -> Taken:
        """Send a take; of several servers one that is away or silent is left soon, for the others."""
        if self._store.is_one_server:
            return await self._store.call(call)
        server = self._server_of(index)
        try:
            async with asyncio.timeout(_SILENT_S):
                taken = await self._store.call(call, deadline_s=0.0)
        except (StoreUnavailable, TimeoutError):
            self._silent.add(server)
            raise
        self._silent.discard(server)
        return taken

    def _full_servers(self) -> set[Address | None]:
        """The servers that have takes enough: one that does not answer leaves the others theirs."""
        takes = Counter(map(self._server_of, self._busy))
        return {server for server, count in takes.items() if count >= TAKERS}

    def _server_of(self, index: int) -> Address | None:
        return self._store.server_of(self._keys.parts[index])

    async def _take(self, index: int, room: int) -> int:
        """Send one take; return how many slots are in use by what it brought."""
        place, part = self._place, self._keys.parts[index]
        before = self._unanswered.pop(index, None)
        tag, sent_s = before or (new_token(), self._clock.monotonic())
        call = take(part, place.queues, place.worker, room, lease_ms=place.lease_ms, tag=tag)
        if before is not None:
            call.args[call.again_at] = "1"
        try:
            taken = await self._call(call, index)
        except BaseException as exc:
            refused = isinstance(exc, StoreUnavailable | Hold | NotReady | Rebuilding)
            if call.args[call.again_at] == "1" or not refused:
                self._unanswered[index] = _Unanswered(tag, sent_s)
            if not isinstance(exc, Exception):
                raise
            self._pause(index, exc)
            return 0
        self._pauses.pop(index, None)
        self.last_tick = self._clock.monotonic()
        used = await self._accept(part, taken, room, sent_s)
        self._follow(part, taken)
        self._go_on(index, taken, room)
        return used

    def _go_on(self, index: int, taken: Taken, room: int) -> None:
        """Ask a partition again that may have more, and look into another one beside it.

        While a few partitions always have work nobody listens at the bells: without the guess the
        others would be found once a second only.
        """
        got = len(taken.starts) + len(taken.stale)
        if got < room and sum(len(start.doc) for start in taken.starts) < _REPLY_FULL:
            return
        self.add(index)
        self._next_guess = (self._next_guess + 1) % self._keys.partitions
        self.add(self._next_guess)

    def _pause(self, index: int, exc: Exception) -> None:
        """Ask again later, the longer it lasts the more slowly."""
        if not isinstance(exc, StoreUnavailable):  # said by the store
            self._say(f"take partition={index}", exc)
        pause_s = self._pauses.get(index, _FIRST_PAUSE_S / _SLOWER) * _SLOWER
        self._pauses[index] = min(pause_s, _LAST_PAUSE_S)
        self._waiting.add(index)
        asyncio.get_running_loop().call_later(self._pauses[index], self._resume, index)

    def _resume(self, index: int) -> None:
        self._waiting.discard(index)
        self.add(index)

    def _say(self, what: str, exc: Exception) -> None:
        now_s = self._clock.monotonic()
        if now_s - self._said_s >= _SAY_EVERY_S:
            self._said_s = now_s
            known = isinstance(exc, RedjobError)
            log.warning("asked_again call=%s reason=%s", what, exc, exc_info=None if known else exc)
