"""A proxy that speaks TLS before a test's plain server, with a certificate made on the spot."""

from __future__ import annotations

import asyncio
import ssl
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import trustme

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_HOST = "127.0.0.1"
_CHUNK = 1 << 16


class TlsProxy:
    """Forwards to a port of this machine what comes in over TLS; a context manager.

    `ca_path` is the certificate that a client must trust, `url` a Redis URL that says so,
    `plain_url` one that leaves the client to the system's certificates: it must refuse.
    """

    def __init__(self, target_port: int, directory: Path, *, hostname: str = _HOST) -> None:
        """Make a certificate for `hostname`; one that is not ours lets clients find a stranger."""
        authority = trustme.CA()
        self.ca_path = directory / "ca.pem"
        authority.cert_pem.write_to_path(str(self.ca_path))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(hostname).configure_cert(self._context)
        self._target_port = target_port
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="tls-proxy", daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10), "the TLS proxy does not listen"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    @property
    def plain_url(self) -> str:
        """The URL without a word about certificates."""
        return f"rediss://{_HOST}:{self.port}/0"

    @property
    def url(self) -> str:
        """The URL of a client that trusts the proxy's certificate."""
        return f"{self.plain_url}?ssl_ca_certs={self.ca_path}"

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        connections: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._forward(reader, writer))
            connections.add(task)
            task.add_done_callback(connections.discard)

        server = await asyncio.start_server(accept, _HOST, 0, ssl=self._context)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until either side ends it."""
        try:
            inner_reader, inner_writer = await asyncio.open_connection(_HOST, self._target_port)
        except OSError:  # the server is down: so is the proxy, as far as the client can see
            writer.transport.abort()
            return
        ways = [
            asyncio.create_task(_pump(reader, inner_writer)),
            asyncio.create_task(_pump(inner_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for end in (writer, inner_writer):
                end.transport.abort()
            await asyncio.gather(*ways, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):  # a reset by either side ends the connection, as its end does
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
