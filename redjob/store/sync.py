"""The blocking store: one call at a time on a connection of its own, threads and forks welcome."""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Sequence
from typing import Any, TypeVar

from redis import exceptions as rx
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.retry import Retry as RedisRetry

from redjob.calls.call import Arg, Call, read_reply
from redjob.calls.reads import Query
from redjob.calls.scripts import ScriptSet
from redjob.clock import Clock, SystemClock
from redjob.keys import Keyspace
from redjob.store.facts import parse_info
from redjob.store.namespace import keyspace_from, namespace_query
from redjob.store.pack import pack
from redjob.store.policy import ConnectFailed, Tries, connect_error
from redjob.store.settings import StoreSettings

T = TypeVar("T")
LONGEST_BLOCK_S = 5.0  # what a blocking command may wait
_CLASSES: dict[str, Any] = {
    "tcp": Connection,
    "tls": SSLConnection,
    "unix": UnixDomainSocketConnection,
}


class SyncLink:
    """One connection, with the run_id of the server behind it and the clock offset measured on it."""

    __slots__ = ("connection", "offset_ms", "run_id")

    def __init__(self, settings: StoreSettings, clock: Clock, block_s: float = 0.0) -> None:
        try:
            self.connection: Any = _CLASSES[settings.kind](
                **settings.options,
                socket_timeout=settings.reply_timeout_s + block_s,
                retry=RedisRetry(NoBackoff(), 0),
                decode_responses=False,
                protocol=2,
            )
            self.connection.connect()
            info = parse_info(self.exchange(("INFO", "server")))
            before = clock.wall_ms()
            seconds, micros = self.exchange(("TIME",))
        except (rx.RedisError, OSError) as exc:
            raise connect_error(exc, settings.shown) from exc
        self.run_id = info.get("run_id", "")
        self.offset_ms = int(seconds) * 1000 + int(micros) // 1000 - (before + clock.wall_ms()) // 2

    def send(self, command: tuple[Arg, ...]) -> None:
        """Send one command."""
        self.connection.send_packed_command((pack(command),), check_health=False)

    def read(self) -> Any:
        """Return the reply of one command that was sent."""
        return self.connection.read_response()

    def exchange(self, command: tuple[Arg, ...]) -> Any:
        """Send one command and return its reply."""
        self.send(command)
        return self.read()

    def exchange_all(self, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
        """Send commands in one write; error replies are returned in their places."""
        packed = b"".join(map(pack, commands))
        self.connection.send_packed_command((packed,), check_health=False)
        replies: list[Any] = []
        for _ in commands:
            try:
                replies.append(self.connection.read_response(disconnect_on_error=False))
            except rx.ResponseError as exc:
                replies.append(exc)
        return replies

    def close(self) -> None:
        """Close without a word to the server."""
        self.connection.disconnect()


class SyncStore:
    """Sends calls and queries of one namespace. Safe to share between threads, and over a fork."""

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
        self.offset_ms = 0  # the server's clock minus ours
        self._asked = partitions
        self._clock = clock or SystemClock()
        self._scripts = scripts or ScriptSet()
        self._idle: deque[SyncLink] = deque()
        self._blocking: deque[SyncLink] = deque()
        self._pid = os.getpid()
        self._rng = random.Random()
        self._keyspace: Keyspace | None = None

    @property
    def keys(self) -> Keyspace:
        """The namespace's keys; the number of partitions is read from Redis at first use.

        Raises NotReady when no scheduler has opened the namespace, PartitionMismatch for another P.
        """
        if self._keyspace is None:
            found = self.query(namespace_query(self.namespace))
            self._keyspace = keyspace_from(self.namespace, found, self._asked)
        return self._keyspace

    def now_ms(self) -> int:
        """The server's clock as last measured, wall ms."""
        return self._clock.wall_ms() + self.offset_ms

    def call(
        self, call: Call[T], *, deadline_s: float | None = None, sent: SyncLink | None = None
    ) -> T:
        """Send a call until it is answered; `sent` is what `send` returned for its first try.

        Raises what its refusal stands for (`read_reply`), StoreFull, StoreUnavailable.
        """
        tries: Tries | None = None
        while True:
            try:
                raw = self._read(call, sent or self._send(call))
            except Exception as exc:  # noqa: BLE001 - the policy raises what it does not know
                sent = None
                tries = tries or self._tries(call.script, deadline_s)
                self._wait(tries, exc)
                if tries.unknown and call.again_at >= 0:
                    call.args[call.again_at] = "1"
                continue
            return read_reply(call, raw, self.namespace)

    def send(self, call: Call[Any]) -> SyncLink | None:
        """Send a call and do not wait: `call` reads the reply, and tries again what failed here."""
        try:
            return self._send(call)
        except (rx.RedisError, OSError, ConnectFailed):
            if call.again_at >= 0:
                call.args[call.again_at] = "1"  # nobody knows how much of it was sent
            return None

    def query(self, query: Query[T], *, deadline_s: float | None = None) -> T:
        """Send plain reads in one pipeline. Raises StoreUnavailable."""
        tries: Tries | None = None
        while True:
            try:
                replies = self._replies(query)
            except Exception as exc:  # noqa: BLE001 - as above
                tries = tries or self._tries("read", deadline_s)
                self._wait(tries, exc)
                continue
            return query.read(replies)

    def block(self, command: tuple[Arg, ...], block_s: float) -> Any:
        """Send a command that waits up to block_s (≤ LONGEST_BLOCK_S), once.

        On a connection that no call shares, and that waits for a reply longer than the command
        blocks. Raises StoreUnavailable.
        """
        assert block_s <= LONGEST_BLOCK_S, "the connection would give up before the server"
        try:
            link = self._take_blocking_link()
            try:
                reply = link.exchange(command)
            except BaseException:
                link.close()
                raise
        except Exception as exc:
            self._tries(str(command[0]), 0.0).after(exc)
            raise
        self._blocking.append(link)
        return reply

    def close(self) -> None:
        """Close idle connections; a later call opens new ones."""
        for links in (self._idle, self._blocking):
            while links:
                links.pop().close()

    def _send(self, call: Call[Any]) -> SyncLink:
        link = self._take_link()
        if call.run_id_at >= 0:
            call.args[call.run_id_at] = link.run_id
        sha = self._scripts[call.script].sha
        try:
            link.send(("EVALSHA", sha, len(call.keys), *call.keys, *call.args))
        except BaseException as exc:
            self._broken(link, exc)
            raise
        return link

    def _read(self, call: Call[Any], link: SyncLink) -> Any:
        try:
            try:
                raw = link.read()
            except rx.NoScriptError:
                text = self._scripts[call.script].text
                raw = link.exchange(("EVAL", text, len(call.keys), *call.keys, *call.args))
        except rx.ResponseError as exc:
            self._keep_or_close(link, exc)
            raise
        except BaseException as exc:
            self._broken(link, exc)
            raise
        self._idle.append(link)
        return raw

    def _replies(self, query: Query[Any]) -> list[Any]:
        if not query.commands:
            return []
        link = self._take_link()
        try:
            replies = link.exchange_all(query.commands)
        except BaseException as exc:
            self._broken(link, exc)
            raise
        for reply in replies:
            if isinstance(reply, rx.ResponseError):
                self._keep_or_close(link, reply)
                raise reply
        self._idle.append(link)
        return replies

    def _take_link(self) -> SyncLink:
        self._notice_fork()
        try:
            return self._idle.pop()
        except IndexError:
            link = SyncLink(self.settings, self._clock)
            self.offset_ms = link.offset_ms
            return link

    def _take_blocking_link(self) -> SyncLink:
        self._notice_fork()
        try:
            return self._blocking.pop()
        except IndexError:
            return SyncLink(self.settings, self._clock, LONGEST_BLOCK_S)

    def _notice_fork(self) -> None:
        """Forget the parent's connections in a child: they are not ours to use or shut."""
        if os.getpid() != self._pid:
            self._pid = os.getpid()
            self._idle = deque()
            self._blocking = deque()

    def _broken(self, link: SyncLink, exc: BaseException) -> None:
        link.close()  # a reply may still be on its way: nobody may read it as his own
        if isinstance(exc, rx.ConnectionError | OSError) and not isinstance(exc, TimeoutError):
            # The server has gone: each of the others would cost a call one try to find that out.
            while self._idle:
                self._idle.pop().close()

    def _keep_or_close(self, link: SyncLink, exc: rx.ResponseError) -> None:
        # read_response has shut the connection on some errors; a READONLY primary must be left too
        if isinstance(exc, rx.ReadOnlyError) or not link.connection.is_connected:
            link.close()
        else:
            self._idle.append(link)

    def _tries(self, what: str, deadline_s: float | None) -> Tries:
        wait_s = self.settings.deadline_s if deadline_s is None else deadline_s
        limit = self._clock.monotonic() + wait_s
        return Tries(what, self.settings.shown, limit, self._clock, self._rng)

    def _wait(self, tries: Tries, exc: BaseException) -> None:
        delay_s = tries.after(exc)
        self._clock.sleep(delay_s)
