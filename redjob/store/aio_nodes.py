"""The asyncio connections to every server that holds jobs, and who has what."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from redis import exceptions as rx

from redjob.calls.call import Arg, Call
from redjob.calls.scripts import ScriptSet
from redjob.clock import Clock
from redjob.errors import NotReplicated, ServerUnsuitable
from redjob.store.aio_link import AsyncLink
from redjob.store.policy import (
    ConnectFailed,
    nobody_knows,
    note,
    raise_first,
    redirection,
    replicas_unsure,
)
from redjob.store.routes import Address, Routes
from redjob.store.server_time import ServerTime
from redjob.store.settings import StoreSettings

MAX_LINKS = 16  # connections for calls to one server; blocking reads come on top
_ASK_S = 1.0  # for one server to say where things are
_ASK_EVERY_S = 0.1


class AsyncPool:
    """The connections to one server; `met` is told who is behind each new one."""

    def __init__(self, settings: StoreSettings, clock: Clock, met: Callable[[str], None]) -> None:
        self.settings = settings
        self.time = ServerTime(clock)
        self._met = met
        self._clock = clock
        self._idle: deque[AsyncLink] = deque()
        self._room = asyncio.Semaphore(MAX_LINKS)

    async def call(self, call: Call[Any], scripts: ScriptSet) -> Any:
        """Send a call and return the raw reply. Raises what redis-py raises, and ConnectFailed."""
        async with self._room:
            link = await self._take()
            try:
                if call.run_id_at >= 0:
                    call.args[call.run_id_at] = link.run_id
                try:
                    raw = await link.exchange(scripts.command(call, sha=True))
                except rx.NoScriptError:
                    raw = await link.exchange(scripts.command(call, sha=False))
                got = await self._wait(link, call) if call.replicas else 0
            except BaseException as exc:
                self._failed(link, exc)
                raise
            self._idle.append(link)
            if got < call.replicas:
                raise NotReplicated(got, call.replicas)
            return raw

    async def _wait(self, link: AsyncLink, call: Call[Any]) -> int:
        """Return how many replicas have what this connection has written, once enough have it."""
        wait_s = self.settings.reply_timeout_s
        command = ("WAIT", call.replicas, int(wait_s * 1000))
        try:
            return int(await link.exchange(command, block_s=wait_s))
        except rx.ResponseError as exc:
            raise replicas_unsure(exc) from exc

    async def commands(self, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
        """Send commands in one write; error replies are returned in their places."""
        async with self._room:
            link = await self._take()
            return await self._exchange_all(link, commands)

    async def calls(self, calls: Sequence[Call[Any]], scripts: ScriptSet) -> list[Any]:
        """Send calls in one write; error replies are returned in their places."""
        async with self._room:
            link = await self._take()
            for call in calls:
                if call.run_id_at >= 0:
                    call.args[call.run_id_at] = link.run_id
            return await self._exchange_all(
                link, [scripts.command(call, sha=True) for call in calls]
            )

    async def open(self) -> AsyncLink:
        """Return a new connection."""
        link = AsyncLink(self.settings)
        await link.open(self._clock, self.time)
        self._met(link.run_id)
        return link

    def close(self) -> None:
        """Close what is idle; a later call opens new ones."""
        while self._idle:
            self._idle.pop().close()

    def abandon(self) -> None:
        """Close the sockets of what is idle; for when the event loop has ended."""
        while self._idle:
            self._idle.pop().abandon()

    async def _exchange_all(
        self, link: AsyncLink, commands: Sequence[tuple[Arg, ...]]
    ) -> list[Any]:
        try:
            replies = await link.exchange_all(commands)
        except BaseException as exc:
            self._failed(link, exc)
            raise
        errors = [reply for reply in replies if isinstance(reply, rx.ResponseError)]
        if errors:
            self._failed(link, errors[0])
        else:
            self._idle.append(link)
        return replies

    async def _take(self) -> AsyncLink:
        while self._idle:
            link = self._idle.pop()
            if not link.connection.is_connected:
                continue
            if self.time.is_old:
                try:
                    await link.read_time(self._clock, self.time)
                except BaseException as exc:
                    self._failed(link, exc)
                    raise
            return link
        return await self.open()

    def _failed(self, link: AsyncLink, exc: BaseException) -> None:
        usable = isinstance(exc, rx.ResponseError) and not isinstance(exc, rx.ReadOnlyError)
        if usable and link.connection.is_connected:
            self._idle.append(link)
            return
        link.close()  # cancelled or broken: the reply to come must not be read by another
        if isinstance(exc, rx.ConnectionError | OSError) and not isinstance(exc, TimeoutError):
            self.close()  # the server has gone: each of the others would cost a call one try


class AsyncNodes:
    """Finds the server of a slot; asks again where things are when one fails or redirects."""

    def __init__(self, settings: StoreSettings, clock: Clock, routes: Routes) -> None:
        self.routes = routes
        self._settings = settings
        self._clock = clock
        self.changes = 0  # how often a server turned out to be another one than before
        self._run_ids: dict[Address, str] = {}
        self._first = set(routes.primaries)  # of the first map: meeting these is no change
        self._pools: dict[Address, AsyncPool] = {}
        self._asking = asyncio.Lock()
        self._asked_at = float("-inf")
        self._mute: set[Address] = set()
        self._trouble: Exception | None = None

    async def at(self, slot: int | None) -> AsyncPool:
        """Return the connections to the server of a slot. Raises ConnectFailed, ServerUnsuitable."""
        if self.routes.stale:
            await self._ask()
        address = self.routes.of(slot)
        if address is None:
            self.routes.failed()
            raise ConnectFailed from rx.ClusterDownError(f"no server has slot {slot}")
        return self.pool(address)

    async def all(self) -> list[AsyncPool]:
        """Return the connections to every server that holds jobs."""
        if self.routes.stale:
            await self._ask()
        return [self.pool(address) for address in self.routes.primaries]

    def now_ms(self, slot: int | None) -> int:
        """Return the wall ms of a slot's server; of another one that has been asked, where it has not."""
        address = self.routes.of(slot)
        pool = self._pools.get(address) if address else None
        if pool is not None and pool.time.is_known:
            return pool.time.now_ms()
        asked = (other for other in list(self._pools.values()) if other.time.is_known)
        other = next(asked, None)
        return self._clock.wall_ms() if other is None else other.time.now_ms()

    def clocks_ms(self) -> dict[Address, int]:
        """Return the wall ms of each server that was asked."""
        known = {address: pool.time for address, pool in self._pools.items() if pool.time.is_known}
        return {address: time.now_ms() for address, time in known.items()}

    def pool(self, address: Address) -> AsyncPool:
        """Return the connections to a server."""
        found = self._pools.get(address)
        if found is None:
            found = AsyncPool(self._settings.at(address), self._clock, partial(self._met, address))
            self._pools[address] = found
        return found

    async def call(self, call: Call[Any], scripts: ScriptSet) -> Any:
        """Send a call to where its slot is. Raises what redis-py raises, and ConnectFailed."""
        try:
            pool = await self.at(call.slot)
            return await pool.call(call, scripts)
        except rx.AskError as exc:
            if isinstance(exc, rx.MovedError):
                self.failed(exc)
                raise
            return (await self._asked(exc, [scripts.command(call, sha=False)]))[0]
        except Exception as exc:
            self.failed(exc)
            raise

    async def commands(self, slot: int | None, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
        """Send commands to where a slot is. Raises the first error among the replies, and ConnectFailed."""
        try:
            pool = await self.at(slot)
            replies = await pool.commands(commands)
            raise_first(replies)
        except rx.AskError as exc:
            if isinstance(exc, rx.MovedError):
                self.failed(exc)
                raise
            return await self._asked(exc, commands)
        except Exception as exc:
            self.failed(exc)
            raise
        return replies

    def failed(self, exc: BaseException) -> None:
        """Draw from an error what it says of where things are. Raises ServerUnsuitable for a wrong URL."""
        note(self.routes, exc)

    def close(self) -> None:
        """Close what is idle."""
        for pool in self._pools.values():
            pool.close()

    def abandon(self) -> None:
        """Close the sockets of what is idle; for when the event loop has ended."""
        for pool in self._pools.values():
            pool.abandon()

    async def _asked(self, exc: rx.AskError, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
        """Send commands where a slot is moving to, this once."""
        address = redirection(exc)
        if address is None:
            raise exc
        pool = self.pool(address)
        pairs = [command for one in commands for command in (("ASKING",), one)]
        replies = (await pool.commands(pairs))[1::2]
        raise_first(replies)
        return replies

    async def _ask(self) -> None:
        async with self._asking:
            now = self._clock.monotonic()
            if not self.routes.stale:
                return
            if now - self._asked_at >= _ASK_EVERY_S:
                self._asked_at = now
                await self._ask_all()
            if not self.routes.primaries:
                settings = self._settings
                raise nobody_knows(self._trouble, settings.topology, settings.shown)

    async def _ask_all(self) -> None:
        """Ask one after another until somebody knows; `_trouble` is what the last one had."""
        for address in sorted(self.routes.candidates(), key=self._mute.__contains__):
            try:
                answer = await self._answer(address)
            except (ConnectFailed, ServerUnsuitable, rx.RedisError, OSError) as exc:
                self._trouble = exc
                self._mute.add(address)  # asked last: a frozen one costs every call here a second
                continue
            self._mute.discard(address)
            if self.routes.learn(address, answer):
                self._first = self._first or set(self.routes.primaries)
                self._forget()
                return
            self._trouble = rx.ConnectionError(f"{address} does not know: {self.routes.unknown}")

    async def _answer(self, address: Address) -> Any:
        link = AsyncLink(self._settings.asking(address))
        try:
            async with asyncio.timeout(_ASK_S):
                await link.connect()
                return await link.exchange(self.routes.question)
        finally:
            link.close()

    def _met(self, address: Address, run_id: str) -> None:
        known = self._run_ids.get(address)
        self._run_ids[address] = run_id
        if known != run_id and (known is not None or address not in self._first):
            self.changes += 1

    def _forget(self) -> None:
        there = set(self.routes.primaries)
        for address in self._pools.keys() - there:
            self._pools.pop(address).close()
