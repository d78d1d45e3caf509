"""Sends lease renewals to the quorum keys: the I/O under `lease`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from redjob.calls.owner import Renewed, renew
from redjob.errors import RedjobError, StoreUnavailable
from redjob.store.aio import AsyncStore


class QuorumKeys:
    """The quorum keys of a namespace: one on a single Redis, five spread over a cluster's masters."""

    def __init__(
        self,
        store: AsyncStore,
        node: str,
        *,
        on_error: Callable[[RedjobError], None],
        indexes: Sequence[int] = (0,),
    ) -> None:
        self._store = store
        self._node = node
        self._on_error = on_error
        self._indexes = indexes

    async def ask(
        self, *, ttl_ms: int, want: frozenset[int], drop: frozenset[int], within_s: float
    ) -> list[Renewed | None]:
        """Send one renewal to every key at once; None stands for one that gave no answer in time."""
        asked = [self._ask_one(index, ttl_ms, want, drop, within_s) for index in self._indexes]
        return await asyncio.gather(*asked)

    async def _ask_one(
        self, index: int, ttl_ms: int, want: frozenset[int], drop: frozenset[int], within_s: float
    ) -> Renewed | None:
        call = renew(
            self._store.namespace,
            index,
            self._node,
            ttl_ms=ttl_ms,
            want=sorted(want),
            drop=sorted(drop),
        )
        try:
            async with asyncio.timeout(within_s):
                # a beat is followed by the next one, a farewell by nothing
                return await self._store.call(call, deadline_s=0.0 if ttl_ms else within_s)
        except TimeoutError:
            self._on_error(StoreUnavailable("no answer to a renewal in time", outcome="unknown"))
        except RedjobError as exc:
            self._on_error(exc)
        return None
