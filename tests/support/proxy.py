"""A TCP proxy before a test's server, that loses replies, connections and time when it is told to."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

_CHUNK = 1 << 16
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER of no time: closing sends RST, as a crashed peer does


class Proxy:
    """Forwards to a port of this machine; `url` is the Redis URL to give to a client."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.dropped = threading.Event()  # set when a reply has been dropped
        self._lock = threading.Lock()
        self._pattern: bytes | None = None
        self._open = threading.Event()
        self._open.set()
        self._closed = False
        self._pairs: set[_Pair] = set()
        self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def drop_next_reply(self, to: bytes = b"") -> None:
        """Forward the next request that holds these bytes, lose its reply and the connection.

        The server has carried the request out by then, and the client cannot know it.
        """
        self.dropped.clear()
        with self._lock:
            self._pattern = to

    def lead_to(self, target_port: int) -> None:
        """Forward new connections to another port, as a name that means another machine by now."""
        self._target_port = target_port

    def reset_all(self) -> None:
        """Break every connection at once."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            pair.reset()

    def pause(self) -> None:
        """Forward nothing more, in either direction, until `resume`; connections stay open."""
        self._open.clear()

    def resume(self) -> None:
        """Forward what has been held back, and what comes."""
        self._open.set()

    def close(self) -> None:
        """Stop listening and break every connection."""
        self._closed = True
        self._listener.close()
        self.resume()
        self.reset_all()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target_port))
            except OSError:  # the server is down: so is the proxy, as far as the client can see
                _close(client)
                continue
            pair = _Pair(client, server)
            with self._lock:
                self._pairs.add(pair)
            if self._closed:
                pair.reset()
            for pump in (self._requests, self._replies):
                threading.Thread(target=pump, args=(pair,), name="proxy", daemon=True).start()

    def _requests(self, pair: _Pair) -> None:
        with suppress(OSError):
            while data := pair.client.recv(_CHUNK):
                self._open.wait()
                with self._lock:
                    if self._pattern is not None and self._pattern in data:
                        self._pattern = None
                        pair.drop = True
                pair.server.sendall(data)
        self._forget(pair)

    def _replies(self, pair: _Pair) -> None:
        with suppress(OSError):
            while data := pair.server.recv(_CHUNK):
                self._open.wait()
                if pair.drop:
                    self.dropped.set()
                    break
                pair.client.sendall(data)
        self._forget(pair)

    def _forget(self, pair: _Pair) -> None:
        pair.reset()
        with self._lock:
            self._pairs.discard(pair)


class _Pair:
    """One connection through the proxy: its two sockets, and whether its next reply is to be lost."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.drop = False

    def reset(self) -> None:
        """Break both sides; the pumps wake up and end."""
        for side in (self.client, self.server):
            _close(side)


def _close(side: socket.socket) -> None:
    with suppress(OSError):
        side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        side.shutdown(socket.SHUT_RDWR)  # close alone would not wake who reads from it
    side.close()
