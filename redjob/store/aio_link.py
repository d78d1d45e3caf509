"""One asyncio connection: what is sent on it, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from redis import exceptions as rx
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry as RedisRetry
from redis.backoff import NoBackoff

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


class AsyncLink:
    """A connection with the run_id of the server behind it."""

    __slots__ = ("_settings", "connection", "run_id")

    def __init__(self, settings: StoreSettings) -> None:
        # no socket_timeout: redis-py would make a task for every write; exchange has its own
        self.connection: Any = _CLASSES[settings.kind](
            **settings.options,
            socket_timeout=None,
            retry=RedisRetry(NoBackoff(), 0),
            decode_responses=False,
            protocol=2,
        )
        self._settings = settings
        self.run_id = ""

    async def connect(self) -> None:
        """Connect, no more. Raises ConnectFailed, ServerUnsuitable."""
        await self._opening(self.connection.connect())

    async def open(self, clock: Clock, time: ServerTime) -> None:
        """Connect and ask who is there, and what time it is. Raises ConnectFailed, ServerUnsuitable."""
        await self.connect()
        info = parse_info(await self._opening(self.exchange(("INFO", "server", "replication"))))
        await self._opening(self.read_time(clock, time))
        self.run_id = info.get("run_id", "")
        if self._settings.topology == "sentinel" and info.get("role") == "slave":
            self.close()
            raise ConnectFailed from rx.ReadOnlyError("a replica by now")

    async def read_time(self, clock: Clock, time: ServerTime) -> None:
        """Compare the clocks."""
        sent = clock.monotonic()
        time.learn(await self.exchange(("TIME",)), sent)

    async def exchange(self, command: tuple[Arg, ...], *, block_s: float = 0.0) -> Any:
        """Send one command and return its reply; block_s is what the command itself may wait."""
        async with asyncio.timeout(self._settings.reply_timeout_s + block_s):
            await self.connection.send_packed_command(pack(command), check_health=False)
            return await self.connection.read_response()

    async def exchange_all(self, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
        """Send commands in one write; error replies are returned in their places."""
        packed = b"".join(map(pack, commands))
        replies: list[Any] = []
        async with asyncio.timeout(self._settings.reply_timeout_s):
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

    def abandon(self) -> None:
        """Close the socket of a connection whose event loop has ended: nothing else can by now."""
        writer = self.connection._writer  # noqa: SLF001 - as in close
        if writer is None:
            return
        transport: Any = writer.transport
        sock = getattr(
            transport, "_sock", None
        )  # of asyncio's own loops; others close at their end
        if sock is not None:
            sock.close()
            transport._sock, transport._closing = None, True  # noqa: SLF001 - nor is there an orderly way
        self.connection._reader = self.connection._writer = None  # noqa: SLF001

    async def _opening(self, step: Any) -> Any:
        try:
            async with asyncio.timeout(self._settings.reply_timeout_s):
                return await step
        except (rx.RedisError, OSError, TimeoutError) as exc:
            self.close()
            raise connect_error(exc, self._settings.shown) from exc
        except BaseException:  # cancelled on the way: nobody else knows of this connection yet
            self.close()
            raise
