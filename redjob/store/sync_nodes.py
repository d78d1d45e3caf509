"""The blocking connections to every server that holds jobs, and who has what."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from redis import exceptions as rx

from redjob.calls.call import Arg, Call
from redjob.calls.scripts import ScriptSet
from redjob.clock import Clock
from redjob.errors import ServerUnsuitable
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
from redjob.store.sync_link import SyncLink

LONGEST_BLOCK_S = 5.0  # what a blocking command may wait
_MOST_IDLE = 32  # connections to one server: more threads than that seldom call at once again
_ASK_S = 1.0  # for one server to say where things are
_ASK_EVERY_S = 0.1


class SyncPool:
    """The connections to one server; `blocking` ones wait longer for a reply."""

    def __init__(self, settings: StoreSettings, clock: Clock) -> None:
        self.settings = settings
        self.time = ServerTime(clock)
        self._clock = clock
        self.idle: deque[SyncLink] = deque()
        self.blocking: deque[SyncLink] = deque()

    def take(self) -> SyncLink:
        """Return a connection that nobody else has. Raises ConnectFailed, ServerUnsuitable."""
        try:
            link = self.idle.pop()
        except IndexError:
            return self._open(self.settings.reply_timeout_s)
        if self.time.is_old:
            try:
                link.read_time(self._clock, self.time)
            except BaseException as exc:
                self.failed(link, exc)
                raise
        return link

    def give(self, link: SyncLink) -> None:
        """Keep a connection for the next call, or close it if there are enough."""
        if len(self.idle) < _MOST_IDLE:
            self.idle.append(link)
        else:
            link.close()

    def take_blocking(self) -> SyncLink:
        """Return a connection for a command that waits. Raises ConnectFailed, ServerUnsuitable."""
        try:
            return self.blocking.pop()
        except IndexError:
            return self._open(self.settings.reply_timeout_s + LONGEST_BLOCK_S)

    def exchange_all(self, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
        """Send commands in one write; error replies are returned in their places."""
        link = self.take()
        try:
            replies = link.exchange_all(commands)
        except BaseException as exc:
            self.failed(link, exc)
            raise
        errors = [reply for reply in replies if isinstance(reply, rx.ResponseError)]
        if errors:
            self.failed(link, errors[0])
        else:
            self.give(link)
        return replies

    def wait(self, link: SyncLink, replicas: int) -> int:
        """Return how many replicas have what a connection has written, once enough have it."""
        # half of what the connection itself would wait for any reply
        wait_ms = int(self.settings.reply_timeout_s * 500)
        try:
            return int(link.exchange(("WAIT", replicas, wait_ms)))
        except rx.ResponseError as exc:
            raise replicas_unsure(exc) from exc

    def failed(self, link: SyncLink, exc: BaseException) -> None:
        """Keep a connection that is still good after an error; a READONLY primary must be left too."""
        usable = isinstance(exc, rx.ResponseError) and not isinstance(exc, rx.ReadOnlyError)
        if usable and link.connection.is_connected:
            self.give(link)
            return
        link.close()  # a reply may still be on its way: nobody may read it as his own
        if isinstance(exc, rx.ConnectionError | OSError) and not isinstance(exc, TimeoutError):
            # The server has gone: each of the others would cost a call one try to find that out.
            while self.idle:
                self.idle.pop().close()

    def close(self) -> None:
        """Close what is idle; a later call opens new ones."""
        for links in (self.idle, self.blocking):
            while links:
                links.pop().close()

    def forget(self) -> None:
        """Leave the connections to the process that this one was forked from."""
        self.idle = deque()
        self.blocking = deque()

    def _open(self, reply_timeout_s: float) -> SyncLink:
        link = SyncLink(self.settings, reply_timeout_s=reply_timeout_s)
        link.greet(self._clock, self.time)
        return link


class SyncNodes:
    """Finds the server of a slot; asks again where things are when one fails or redirects."""

    def __init__(self, settings: StoreSettings, clock: Clock, routes: Routes) -> None:
        self.routes = routes
        self._settings = settings
        self._clock = clock
        self._pools: dict[Address, SyncPool] = {}
        self._asking = threading.Lock()
        self._asked_at = float("-inf")
        self._mute: set[Address] = set()
        self._trouble: Exception | None = None

    def at(self, slot: int | None) -> SyncPool:
        """Return the connections to the server of a slot. Raises ConnectFailed, ServerUnsuitable."""
        if self.routes.stale:
            self._ask()
        address = self.routes.of(slot)
        if address is None:
            self.routes.failed()
            raise ConnectFailed from rx.ClusterDownError(f"no server has slot {slot}")
        return self.pool(address)

    def all(self) -> list[SyncPool]:
        """Return the connections to every server that holds jobs."""
        if self.routes.stale:
            self._ask()
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

    def pool(self, address: Address) -> SyncPool:
        """Return the connections to a server."""
        found = self._pools.get(address)
        if found is None:
            made = SyncPool(self._settings.at(address), self._clock)
            found = self._pools.setdefault(address, made)  # another thread may have been quicker
        return found

    def commands(self, slot: int | None, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
        """Send commands to where a slot is. Raises the first error among the replies, and ConnectFailed."""
        try:
            replies = self.at(slot).exchange_all(commands)
            raise_first(replies)
        except rx.AskError as exc:
            if isinstance(exc, rx.MovedError):
                note(self.routes, exc)
                raise
            return self._asked(exc, commands)
        except Exception as exc:
            note(self.routes, exc)
            raise
        return replies

    def asked(self, exc: rx.AskError, call: Call[Any], scripts: ScriptSet) -> Any:
        """Send a call where its slot is moving to, this once."""
        return self._asked(exc, [scripts.command(call, sha=False)])[0]

    def close(self) -> None:
        """Close what is idle."""
        for pool in list(self._pools.values()):
            pool.close()

    def notice_fork(self) -> None:
        """Forget the parent's connections in a child: they are not ours to use or shut."""
        self._asking = threading.Lock()
        for pool in self._pools.values():
            pool.forget()

    def _asked(self, exc: rx.AskError, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
        address = redirection(exc)
        if address is None:
            raise exc
        pairs = [command for one in commands for command in (("ASKING",), one)]
        replies = self.pool(address).exchange_all(pairs)[1::2]
        raise_first(replies)
        return replies

    def _ask(self) -> None:
        with self._asking:
            now = self._clock.monotonic()
            if not self.routes.stale:
                return
            if now - self._asked_at >= _ASK_EVERY_S:
                self._asked_at = now
                self._ask_all()
            if not self.routes.primaries:
                settings = self._settings
                raise nobody_knows(self._trouble, settings.topology, settings.shown)

    def _ask_all(self) -> None:
        """Ask one after another until somebody knows; `_trouble` is what the last one had."""
        for address in sorted(self.routes.candidates(), key=self._mute.__contains__):
            try:
                answer = self._answer(address)
            except (ConnectFailed, ServerUnsuitable, rx.RedisError, OSError) as exc:
                self._trouble = exc
                self._mute.add(address)  # asked last: a frozen one costs every call here a second
                continue
            self._mute.discard(address)
            if self.routes.learn(address, answer):
                self._forget()
                return
            self._trouble = rx.ConnectionError(f"{address} does not know: {self.routes.unknown}")

    def _answer(self, address: Address) -> Any:
        settings = self._settings.asking(address)
        settings.options.setdefault("socket_connect_timeout", _ASK_S)
        link = SyncLink(settings, reply_timeout_s=_ASK_S)
        try:
            return link.exchange(self.routes.question)
        finally:
            link.close()

    def _forget(self) -> None:
        there = set(self.routes.primaries)
        for address in set(self._pools) - there:
            self._pools.pop(address).close()
