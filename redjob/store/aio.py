"""The asyncio store: calls share a few connections, blocking reads have connections of their own."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Sequence
from typing import Any, TypeVar

from redis import exceptions as rx
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry as RedisRetry
from redis.backoff import NoBackoff

from redjob.calls.call import Arg, Call, read_reply
from redjob.calls.reads import Query
from redjob.calls.scripts import ScriptSet
from redjob.clock import Clock, SystemClock
from redjob.errors import RedjobError
from redjob.keys import Keyspace
from redjob.store.facts import ServerFacts, facts_query, parse_info
from redjob.store.namespace import keyspace_from, namespace_query, open_query
from redjob.store.pack import pack
from redjob.store.policy import Tries, connect_error
from redjob.store.settings import StoreSettings

T = TypeVar("T")
MAX_LINKS = 16  # connections for calls; blocking reads come on top
_CLASSES: dict[str, Any] = {
    "tcp": Connection,
    "tls": SSLConnection,
    "unix": UnixDomainSocketConnection,
}


class AsyncLink:
    """One connection, with the run_id of the server behind it and the clock offset measured on it."""

    __slots__ = ("connection", "offset_ms", "reply_timeout_s", "run_id")

    def __init__(self, settings: StoreSettings) -> None:
        # no socket_timeout: redis-py would make a task for every write; exchange has its own
        self.connection: Any = _CLASSES[settings.kind](
            **settings.options,
            socket_timeout=None,
            retry=RedisRetry(NoBackoff(), 0),
            decode_responses=False,
            protocol=2,
        )
        self.reply_timeout_s = settings.reply_timeout_s
        self.run_id = ""
        self.offset_ms = 0

    async def open(self, settings: StoreSettings, clock: Clock) -> None:
        """Connect and ask who is there. Raises ConnectFailed, ServerUnsuitable."""
        try:
            async with asyncio.timeout(self.reply_timeout_s):
                await self.connection.connect()
            info = parse_info(await self.exchange(("INFO", "server")))
            before = clock.wall_ms()
            seconds, micros = await self.exchange(("TIME",))
        except (rx.RedisError, OSError, TimeoutError) as exc:
            self.close()
            raise connect_error(exc, settings.shown) from exc
        except BaseException:  # cancelled on the way: nobody else knows of this connection yet
            self.close()
            raise
        self.run_id = info.get("run_id", "")
        self.offset_ms = int(seconds) * 1000 + int(micros) // 1000 - (before + clock.wall_ms()) // 2

    async def exchange(self, command: tuple[Arg, ...], *, block_s: float = 0.0) -> Any:
        """Send one command and return its reply; block_s is what the command itself may wait."""
        async with asyncio.timeout(self.reply_timeout_s + block_s):
            await self.connection.send_packed_command(pack(command), check_health=False)
            return await self.connection.read_response()

    async def exchange_all(self, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
        """Send commands in one write; error replies are returned in their places."""
        packed = b"".join(map(pack, commands))
        replies: list[Any] = []
        async with asyncio.timeout(self.reply_timeout_s):
            await self.connection.send_packed_command(packed, check_health=False)
            for _ in commands:
                try:
                    reply = await self.connection.read_response(disconnect_on_error=False)
                except rx.ResponseError as exc:
                    reply = exc
                replies.append(reply)
        return replies

    def close(self) -> None:
        """Drop the connection at once: whatever is still under way on it, nobody will read."""
        writer = self.connection._writer  # noqa: SLF001 - redis-py has no close that does not await
        if writer is not None:
            writer.close()
            self.connection._reader = self.connection._writer = None  # noqa: SLF001
            self.connection._parser.on_disconnect()  # noqa: SLF001


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
        self.offset_ms = 0  # the server's clock minus ours
        self.run_id = ""  # of the server behind the newest connection: another one after a restart
        self.asked_partitions = partitions
        self._scripts = scripts or ScriptSet()
        self._idle: deque[AsyncLink] = deque()
        self._room = asyncio.Semaphore(MAX_LINKS)
        self._rng = random.Random()
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

    async def facts(self, *, deadline_s: float | None = None) -> ServerFacts:
        """Ask the server about itself."""
        return await self.query(facts_query(), deadline_s=deadline_s)

    def now_ms(self) -> int:
        """The server's clock as last measured, wall ms."""
        return self.clock.wall_ms() + self.offset_ms

    async def call(self, call: Call[T], *, deadline_s: float | None = None) -> T:
        """Send a call until it is answered.

        Raises what its refusal stands for (`read_reply`), StoreFull, StoreUnavailable.
        """
        tries: Tries | None = None
        while True:
            try:
                raw = await self._once(call)
            except Exception as exc:  # noqa: BLE001 - the policy raises what it does not know
                tries = tries or self._tries(call.script, deadline_s)
                await asyncio.sleep(tries.after(exc))
                if tries.unknown and call.again_at >= 0:
                    call.args[call.again_at] = "1"
                continue
            return read_reply(call, raw, self.namespace)

    async def call_all(self, calls: Sequence[Call[T]]) -> list[T | RedjobError]:
        """Send calls in one pipeline; a refusal stands in its call's place.

        One try: whoever sends many at once has a loop that comes round again. Raises
        StoreUnavailable when there is no connection or no reply in time.
        """
        if not calls:
            return []
        tries = self._tries("pipeline", 0.0)
        try:
            raws = await self._replies((), calls)
        except Exception as exc:
            tries.after(exc)
            raise
        results: list[T | RedjobError] = []
        for call, raw in zip(calls, raws, strict=True):
            try:
                if isinstance(raw, rx.NoScriptError):
                    again: T = await self.call(call)
                    results.append(again)
                elif isinstance(raw, rx.ResponseError):
                    self._tries(call.script, 0.0).after(raw)
                else:
                    results.append(read_reply(call, raw, self.namespace))
            except RedjobError as exc:
                results.append(exc)
        return results

    async def query(self, query: Query[T], *, deadline_s: float | None = None) -> T:
        """Send plain reads in one pipeline. Raises StoreUnavailable."""
        return (await self.query_all([query], deadline_s=deadline_s))[0]

    async def query_all(
        self, queries: Sequence[Query[T]], *, deadline_s: float | None = None
    ) -> list[T]:
        """Send several reads in one pipeline. Raises StoreUnavailable."""
        commands = [command for query in queries for command in query.commands]
        tries: Tries | None = None
        while True:
            try:
                replies = await self._replies(commands, ()) if commands else []
                errors = [reply for reply in replies if isinstance(reply, rx.ResponseError)]
                if errors:
                    raise errors[0]  # noqa: TRY301 - an error reply is judged like a broken connection
            except Exception as exc:  # noqa: BLE001 - the policy raises what it does not know
                tries = tries or self._tries("read", deadline_s)
                await asyncio.sleep(tries.after(exc))
                continue
            results: list[T] = []
            for query in queries:
                results.append(query.read(replies[: len(query.commands)]))
                replies = replies[len(query.commands) :]
            return results

    async def block(self, link: AsyncLink, command: tuple[Arg, ...], block_s: float) -> Any:
        """Send a blocking command on a connection of its own (`dedicated`), once.

        Raises StoreUnavailable; the link is closed then and opens again at the next use.
        """
        try:
            if not link.connection.is_connected:
                await link.open(self.settings, self.clock)
            return await link.exchange(command, block_s=block_s)
        except BaseException as exc:
            link.close()
            if isinstance(exc, Exception):
                self._tries(str(command[0]), 0.0).after(exc)
            raise

    def dedicated(self) -> AsyncLink:
        """Return a connection of the caller's own, for `block`; it is opened at first use."""
        return AsyncLink(self.settings)

    async def aclose(self) -> None:
        """Close idle connections; a later call opens new ones."""
        while self._idle:
            self._idle.pop().close()

    def _command(self, call: Call[Any], *, sha: bool) -> tuple[Arg, ...]:
        script = self._scripts[call.script]
        name, what = ("EVALSHA", script.sha) if sha else ("EVAL", script.text)
        return (name, what, len(call.keys), *call.keys, *call.args)

    async def _once(self, call: Call[Any]) -> Any:
        async with self._room:
            link = await self._take_link()
            try:
                if call.run_id_at >= 0:
                    call.args[call.run_id_at] = link.run_id
                try:
                    raw = await link.exchange(self._command(call, sha=True))
                except rx.NoScriptError:
                    raw = await link.exchange(self._command(call, sha=False))
            except rx.ResponseError as exc:
                self._keep_or_close(link, exc)
                raise
            except BaseException as exc:
                self._broken(link, exc)
                raise
            self._idle.append(link)
            return raw

    async def _replies(
        self, commands: Sequence[tuple[Arg, ...]], calls: Sequence[Call[Any]]
    ) -> list[Any]:
        async with self._room:
            link = await self._take_link()
            if calls:
                for call in calls:
                    if call.run_id_at >= 0:
                        call.args[call.run_id_at] = link.run_id
                commands = [self._command(call, sha=True) for call in calls]
            try:
                replies = await link.exchange_all(commands)
            except BaseException as exc:
                self._broken(link, exc)
                raise
            errors = [reply for reply in replies if isinstance(reply, rx.ResponseError)]
            if errors:
                self._keep_or_close(link, errors[0])
            else:
                self._idle.append(link)
            return replies

    async def _take_link(self) -> AsyncLink:
        while self._idle:
            link = self._idle.pop()
            if link.connection.is_connected:
                return link
        link = AsyncLink(self.settings)
        await link.open(self.settings, self.clock)
        self.offset_ms, self.run_id = link.offset_ms, link.run_id
        return link

    def _broken(self, link: AsyncLink, exc: BaseException) -> None:
        link.close()  # cancelled or broken: the reply to come must not be read by another
        if isinstance(exc, rx.ConnectionError | OSError) and not isinstance(exc, TimeoutError):
            # The server has gone: each of the others would cost a call one try to find that out.
            while self._idle:
                self._idle.pop().close()

    def _keep_or_close(self, link: AsyncLink, exc: rx.ResponseError) -> None:
        if isinstance(exc, rx.ReadOnlyError) or not link.connection.is_connected:
            link.close()
        else:
            self._idle.append(link)

    def _tries(self, what: str, deadline_s: float | None) -> Tries:
        wait_s = self.settings.deadline_s if deadline_s is None else deadline_s
        limit = self.clock.monotonic() + wait_s
        return Tries(what, self.settings.shown, limit, self.clock, self._rng)
