"""The asyncio store: sends calls and reads until they are answered, wherever their slots are."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from redis import exceptions as rx

from redjob.calls.call import Arg, Call, read_reply
from redjob.calls.reads import Query
from redjob.calls.scripts import ScriptSet
from redjob.clock import Clock, SystemClock
from redjob.errors import RedjobError
from redjob.keys import Keyspace, PartitionKeys
from redjob.store.aio_link import AsyncLink
from redjob.store.aio_nodes import AsyncNodes, AsyncPool
from redjob.store.facts import ServerFacts, facts_query
from redjob.store.namespace import keyspace_from, namespace_query, open_query
from redjob.store.policy import Tries, read_with
from redjob.store.routes import Address, routes_for
from redjob.store.settings import StoreSettings

T = TypeVar("T")
_I = TypeVar("_I", Call[Any], Query[Any])
_REDIRECTED = (rx.AskError, rx.NoScriptError, rx.TryAgainError)  # MOVED is an ASK for good


class Dedicated:
    """A connection of its owner's own to the server of a slot, for blocking reads (`AsyncStore.block`)."""

    __slots__ = ("link", "pool", "slot")

    def __init__(self, slot: int | None) -> None:
        self.slot = slot
        self.pool: AsyncPool | None = None
        self.link: AsyncLink | None = None

    def close(self) -> None:
        """Drop the connection; a later use opens another."""
        if self.link is not None:
            self.link.close()
            self.link = None


class AsyncStore:
    """Sends calls and queries of one namespace from one event loop."""

    def __init__(
        self,
        settings: StoreSettings,
        namespace: str = "redjob",
        *,
        partitions: int | None = None,
        clock: Clock | None = None,
        scripts: ScriptSet | None = None,
    ) -> None:
        self.settings = settings
        self.namespace = namespace
        self.clock = clock or SystemClock()
        self.asked_partitions = partitions
        self._scripts = scripts or ScriptSet()
        self._rng = random.Random()
        routes = routes_for(settings.topology, settings.seeds, settings.service, self._rng)
        self._nodes = AsyncNodes(settings, self.clock, routes)
        self._keyspace: Keyspace | None = None

    @property
    def keys(self) -> Keyspace:
        """The namespace's keys, known after `open`."""
        assert self._keyspace is not None, "await store.open() first"
        return self._keyspace

    async def open(self, *, create: int | None = None, deadline_s: float | None = None) -> Keyspace:
        """Learn the number of partitions; `create` writes it where it is missing (schedulers only).

        Raises NotReady, PartitionMismatch, ServerUnsuitable, StoreUnavailable.
        """
        if self._keyspace is None:
            query = (
                open_query(self.namespace, create) if create else namespace_query(self.namespace)
            )
            found = await self.query(query, deadline_s=deadline_s)
            self._keyspace = keyspace_from(self.namespace, found, self.asked_partitions)
        return self._keyspace

    async def facts(self, *, deadline_s: float | None = None) -> list[ServerFacts]:
        """Ask each server that holds jobs about itself. Raises StoreUnavailable."""
        first = await self.query(facts_query(), deadline_s=deadline_s)  # waits until one is there
        pools = await self._nodes.all()
        if len(pools) == 1:
            return [first]
        query = facts_query()
        try:
            return [query.read(await pool.commands(query.commands)) for pool in pools]
        except Exception as exc:
            self._nodes.failed(exc)
            self._tries("INFO", 0.0, follow_moves=False).after(exc)
            raise

    def now_ms(self, part: PartitionKeys | None = None) -> int:
        """The clock of a partition's server (of any one for None) as last measured, wall ms."""
        return self._nodes.now_ms(part.slot if part else None)

    @property
    def server_changes(self) -> int:
        """How often a server was met that is not what was there before: restarts, failovers, new nodes."""
        return self._nodes.changes

    @property
    def is_one_server(self) -> bool:
        """Whether one command may read keys of all partitions: everywhere but on a cluster."""
        return self.settings.topology != "cluster"

    def clocks_ms(self) -> dict[Address, int]:
        """The clock of each server that was asked, wall ms at this moment."""
        return self._nodes.clocks_ms()

    @property
    def servers(self) -> list[Address]:
        """Every server that holds jobs, as far as is known."""
        return self._nodes.routes.primaries

    def server_of(self, part: PartitionKeys) -> Address | None:
        """The server of a partition as far as is known: the same for all on a single Redis."""
        return self._nodes.routes.of(part.slot)

    async def call(self, call: Call[T], *, deadline_s: float | None = None) -> T:
        """Send a call until it is answered.

        Raises what its refusal stands for (`read_reply`), StoreFull, StoreUnavailable.
        """
        tries: Tries | None = None
        while True:
            try:
                raw = await self._nodes.call(call, self._scripts)
            except Exception as exc:  # noqa: BLE001 - the policy raises what it does not know
                tries = tries or self._tries(call.script, deadline_s)
                await asyncio.sleep(tries.after(exc))
                if tries.unknown and call.again_at >= 0:
                    call.args[call.again_at] = "1"
                continue
            reply: T = read_with(call.script, read_reply, call, raw, self.namespace)
            return reply

    async def call_all(self, calls: Sequence[Call[T]]) -> list[T | RedjobError]:
        """Send calls in one pipeline a server; a refusal stands in its call's place.

        One try: whoever sends many at once has a loop that comes round again. Raises
        StoreUnavailable when no server of these calls gave an answer in time.
        """
        if not calls:
            return []
        raws = await self._by_server(calls, lambda pool, some: pool.calls(some, self._scripts))
        if all(
            isinstance(raw, Exception) and not isinstance(raw, rx.ResponseError) for raw in raws
        ):
            self._tries("pipeline", 0.0).after(raws[0])
        results: list[T | RedjobError] = []
        for call, raw in zip(calls, raws, strict=True):
            try:
                if isinstance(raw, _REDIRECTED):
                    self._nodes.failed(raw)
                    again: T = await self.call(call, deadline_s=0.0)
                    results.append(again)
                elif isinstance(raw, Exception):
                    self._tries(call.script, 0.0).after(raw)
                else:
                    reply: T = read_with(call.script, read_reply, call, raw, self.namespace)
                    results.append(reply)
            except RedjobError as exc:
                results.append(exc)
        return results

    async def query_each(self, queries: Sequence[Query[T]]) -> list[T | RedjobError]:
        """Send several reads in one pipeline a server, once; an error stands in its read's place."""
        results: list[T | RedjobError] = []
        found = await self._by_server(queries, _send_all)
        for query, replies in zip(queries, found, strict=True):
            try:
                if isinstance(replies, _REDIRECTED):
                    self._nodes.failed(replies)
                    results.append(await self.query(query, deadline_s=0.0))
                elif isinstance(replies, Exception):
                    self._tries("read", 0.0).after(replies)
                else:
                    results.append(read_with("read", query.read, replies))
            except RedjobError as exc:
                results.append(exc)
        return results

    async def query(self, query: Query[T], *, deadline_s: float | None = None) -> T:
        """Send plain reads in one pipeline. Raises StoreUnavailable."""
        return (await self.query_all([query], deadline_s=deadline_s))[0]

    async def query_all(
        self, queries: Sequence[Query[T]], *, deadline_s: float | None = None
    ) -> list[T]:
        """Send several reads in one pipeline a server. Raises StoreUnavailable."""
        tries: Tries | None = None
        while True:
            try:
                found = await self._by_server(queries, _send_all)
                for index, query in enumerate(queries):
                    if isinstance(found[index], _REDIRECTED):
                        found[index] = await self._nodes.commands(query.slot, query.commands)
                    elif isinstance(found[index], Exception):
                        raise found[index]  # noqa: TRY301 - an error reply is judged like a broken connection
            except Exception as exc:  # noqa: BLE001 - the policy raises what it does not know
                self._nodes.failed(exc)
                tries = tries or self._tries("read", deadline_s)
                await asyncio.sleep(tries.after(exc))
                continue
            return [
                read_with("read", query.read, replies)
                for query, replies in zip(queries, found, strict=True)
            ]

    async def block(self, at: Dedicated, command: tuple[Arg, ...], block_s: float) -> Any:
        """Send a blocking command on a connection of its own (`dedicated`), once.

        Raises StoreUnavailable; the connection is closed then and opens again at the next use.
        """
        try:
            pool = await self._nodes.at(at.slot)
            if at.pool is not pool or at.link is None or not at.link.connection.is_connected:
                at.close()
                at.pool, at.link = pool, await pool.open()
            return await at.link.exchange(command, block_s=block_s)
        except BaseException as exc:
            at.close()
            if isinstance(exc, Exception):
                self._nodes.failed(exc)
                self._tries(str(command[0]), 0.0, follow_moves=False).after(exc)
            raise

    def dedicated(self, part: PartitionKeys | None = None) -> Dedicated:
        """Return a connection of the caller's own, for `block`; it is opened at first use."""
        return Dedicated(part.slot if part else None)

    async def aclose(self) -> None:
        """Close idle connections; a later call opens new ones."""
        self._nodes.close()

    def abandon(self) -> None:
        """Close the sockets of idle connections; for when the event loop has ended."""
        self._nodes.abandon()

    async def _by_server(
        self, items: Sequence[_I], send: Callable[[AsyncPool, list[_I]], Awaitable[list[Any]]]
    ) -> list[Any]:
        """Send each item with those of its server; the error of one that failed stands in its place."""
        answers: list[Any] = [None] * len(items)
        groups: dict[AsyncPool, list[int]] = {}
        for index, item in enumerate(items):
            try:
                groups.setdefault(await self._nodes.at(item.slot), []).append(index)
            except Exception as exc:  # noqa: BLE001 - whoever reads the answers judges
                answers[index] = exc

        async def send_group(pool: AsyncPool, indexes: list[int]) -> None:
            try:
                found = await send(pool, [items[index] for index in indexes])
            except Exception as exc:  # noqa: BLE001 - as above
                self._nodes.failed(exc)
                found = [exc] * len(indexes)
            for index, answer in zip(indexes, found, strict=True):
                answers[index] = answer

        if len(groups) == 1:  # nearly always: no task for it
            await send_group(*groups.popitem())
        elif groups:
            await asyncio.gather(*(send_group(*group) for group in groups.items()))
        return answers

    def _tries(self, what: str, deadline_s: float | None, *, follow_moves: bool = True) -> Tries:
        wait_s = self.settings.deadline_s if deadline_s is None else deadline_s
        limit = self.clock.monotonic() + wait_s
        return Tries(
            what, self.settings.shown, limit, self.clock, self._rng, follow_moves=follow_moves
        )


async def _send_all(pool: AsyncPool, queries: Sequence[Query[Any]]) -> list[Any]:
    """Send reads in one write; the first error among the replies of one stands for it."""
    replies = await pool.commands([command for query in queries for command in query.commands])
    answers: list[Any] = []
    for query in queries:
        count = len(query.commands)
        own, replies = replies[:count], replies[count:]
        errors = (reply for reply in own if isinstance(reply, rx.ResponseError))
        answers.append(next(errors, own))
    return answers
