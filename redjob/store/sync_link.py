"""One blocking connection: what is sent on it, and how it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis import exceptions as rx
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.retry import Retry as RedisRetry

from redjob.calls.call import Arg
from redjob.clock import Clock
from redjob.store.facts import parse_info
from redjob.store.pack import pack
from redjob.store.policy import ConnectFailed, connect_error
from redjob.store.server_time import ServerTime
from redjob.store.settings import StoreSettings

_CLASSES: dict[str, Any] = {
    "tcp": Connection,
    "tls": SSLConnection,
    "unix": UnixDomainSocketConnection,
}


class SyncLink:
    """A connection with the run_id of the server behind it."""

    __slots__ = ("_settings", "connection", "run_id")

    def __init__(self, settings: StoreSettings, *, reply_timeout_s: float) -> None:
        """Connect, no more. Raises ConnectFailed, ServerUnsuitable."""
        self._settings = settings
        self.run_id = ""
        try:
            self.connection: Any = _CLASSES[settings.kind](
                **settings.options,
                socket_timeout=reply_timeout_s,
                retry=RedisRetry(NoBackoff(), 0),
                decode_responses=False,
                protocol=2,
            )
            self.connection.connect()
        except (rx.RedisError, OSError) as exc:
            raise connect_error(exc, settings.shown) from exc

    def greet(self, clock: Clock, time: ServerTime) -> None:
        """Ask who is there, and what time it is. Raises ConnectFailed, ServerUnsuitable."""
        try:
            info = parse_info(self.exchange(("INFO", "server", "replication")))
            self.read_time(clock, time)
        except (rx.RedisError, OSError) as exc:
            self.close()
            raise connect_error(exc, self._settings.shown) from exc
        self.run_id = info.get("run_id", "")
        if self._settings.topology == "sentinel" and info.get("role") == "slave":
            self.close()
            raise ConnectFailed from rx.ReadOnlyError("a replica by now")

    def read_time(self, clock: Clock, time: ServerTime) -> None:
        """Compare the clocks."""
        sent = clock.monotonic()
        time.learn(self.exchange(("TIME",)), sent)

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
