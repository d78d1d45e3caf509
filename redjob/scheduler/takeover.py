"""Opens partitions that are held: reads where the journal stands, installs the fence, fills the wheel.

All of them together and in a few pipelines, whatever the reason: start, the end of another node, a
restarted, restored or emptied Redis, a journal that is not the one that was read. The fence's reply
is the position from which the journal is tailed, and what is due is read after it: a job that is
enqueued in between is seen twice, never by neither.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from redjob.calls.owner import Fence, Installed, fence
from redjob.calls.reads import JournalPosition, Query, journal_position
from redjob.clock import Clock
from redjob.config import SchedulerConfig
from redjob.errors import Fenced, RedjobError
from redjob.ids import new_token
from redjob.keys import PartitionKeys
from redjob.scheduler.counters import Counters
from redjob.scheduler.exchange import Exchange
from redjob.scheduler.holdings import Holdings
from redjob.scheduler.outage import Outage
from redjob.scheduler.owner import PartitionOwner
from redjob.scheduler.rollback import Rollback
from redjob.store.namespace import keyspace_from, open_query

log = logging.getLogger("redjob.scheduler")

_SOON_S = 1.0
_LAST_REST_S = 5.0
_AGAIN_S = 0.05  # between two tries to open what could not be opened


class _Opened(NamedTuple):
    owner: PartitionOwner
    installed: Installed
    replaced: bool  # the server is not the one that the owner before this one knew


class _Rests:
    """Lets a partition that closes as soon as it is opened rest in between, longer each time.

    One with a damaged journal would else be opened some 50 times a second, each time with a line.
    """

    def __init__(self) -> None:
        self._opened: dict[int, tuple[float, float]] = {}  # monotonic s, and the rest after it in s

    def opened(self, index: int, now: float) -> None:
        """A partition was opened; how long it rests if it closes at once."""
        at, rest_s = self._opened.get(index, (float("-inf"), 0.0))
        soon = now - at < rest_s + _SOON_S
        self._opened[index] = (now, min(_LAST_REST_S, rest_s * 2 or _AGAIN_S) if soon else 0.0)

    def is_over(self, index: int, now: float) -> bool:
        """Whether a partition may be opened again."""
        at, rest_s = self._opened.get(index, (float("-inf"), 0.0))
        return now - at >= rest_s


class Takeover:
    """Turns partitions that are held into open ones; `prime` finds what is due in them."""

    def __init__(
        self,
        exchange: Exchange,
        holdings: Holdings,
        outage: Outage,
        config: SchedulerConfig,
        *,
        counters: Counters,
        prime: Callable[[Sequence[PartitionOwner]], Awaitable[None]],
    ) -> None:
        self._exchange = exchange
        self._clock: Clock = exchange.clock
        self._holdings = holdings
        self._outage = outage
        self._config = config
        self._counters = counters
        self._prime = prime
        self._rollback = Rollback(exchange.store, counters)
        self._rests = _Rests()
        self._epochs: dict[int, int] = {}  # of fences that were refused: what stands there already

    async def step(self) -> float:
        """Wait for work and do it. Raises StoreUnavailable."""
        if not self._holdings.missing:
            self._holdings.work.clear()
            await self._holdings.work.wait()
        started = self._clock.monotonic()
        missing = [
            index for index in sorted(self._holdings.missing) if self._rests.is_over(index, started)
        ]
        opened = await self._open([self._exchange.store.keys.parts[index] for index in missing])
        if opened:
            await self._prime([owner for owner, *_ in opened])
            self._counters.takeovers += len(opened)
            for owner, *_ in opened:
                self._rests.opened(owner.part.index, self._clock.monotonic())
            took_ms = (self._clock.monotonic() - started) * 1000
            log.info("partitions_opened partitions=%s took_ms=%.0f", _numbers(opened), took_ms)
        _tell_replaced(opened)
        for owner, installed, _ in opened:  # last: to explain may take longer than to fire
            known = self._holdings.known.get(owner.part.index)
            if known is not None:
                await self._rollback.report(owner.part, known, installed)
                self._holdings.known.pop(owner.part.index, None)
        return _AGAIN_S if self._holdings.missing else 0.0

    async def _open(self, parts: Sequence[PartitionKeys]) -> list[_Opened]:
        found = await self._positions(parts)
        if any(position is None for _, position in found):
            await self._create_namespace()
        tokens = [
            Fence(
                max(position.epoch if position else 0, self._epochs.get(part.index, 0)) + 1,
                new_token(),
            )
            for part, position in found
        ]
        calls = [
            fence(
                part,
                token,
                incarnation=new_token(),  # used where meta is missing
                depth_limit=self._config.depth_limit,
                grace_ms=self._config.grace_ms,
            )
            for (part, _), token in zip(found, tokens, strict=True)
        ]
        opened: list[_Opened] = []
        answers = await self._exchange.call_all(calls)
        for (part, _), token, call, answer in zip(found, tokens, calls, answers, strict=True):
            if isinstance(answer, Fenced):  # somebody was quicker; the lease says who may go on
                self._epochs[part.index] = answer.epoch
            elif isinstance(answer, RedjobError):
                self._outage.failed(answer)
            else:
                owner = PartitionOwner(part, token, answer)
                if self._holdings.open(owner):
                    replaced = answer.run_id_before not in {"", call.args[call.run_id_at]}
                    opened.append(_Opened(owner, answer, replaced))
        return opened

    async def _positions(
        self, parts: Sequence[PartitionKeys]
    ) -> list[tuple[PartitionKeys, JournalPosition | None]]:
        """Read where the journals stand; a partition whose meta cannot be read is left out."""

        def boxed(query: Query[JournalPosition | None]) -> Query[tuple[JournalPosition | None]]:
            return Query(query.part, query.commands, lambda raw: (query.read(raw),))

        boxes = await self._exchange.read_each([boxed(journal_position(part)) for part in parts])
        return [(part, box[0]) for part, box in zip(parts, boxes, strict=True) if box is not None]

    async def _create_namespace(self) -> None:
        """Write the namespace's meta where it is missing: a partition that is gone may not be alone.

        Raises PartitionMismatch when another scheduler has written it with another number.
        """
        namespace, partitions = self._exchange.store.namespace, self._exchange.store.keys.partitions
        found = await self._exchange.store.query(open_query(namespace, partitions), deadline_s=0.0)
        keyspace_from(namespace, found, partitions)


def _tell_replaced(opened: Sequence[_Opened]) -> None:
    """Say that a server was restarted or replaced.

    What it acknowledged at its last moment, level memory, may be lost without anybody having read it:
    `rollback` can name only what was read.
    """
    replaced = [one for one in opened if one.replaced]
    if replaced:
        log.warning("server_replaced partitions=%s newest_writes=unsure", _numbers(replaced))


def _numbers(opened: Sequence[_Opened]) -> str:
    return ",".join(str(owner.part.index) for owner, *_ in opened)
