"""A Valkey or Redis of redjob's own, for demo, dev, bench and tests; stands beside the chain."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import IO, TYPE_CHECKING

from redjob.embedded.binary import ServerBinary, require_server
from redjob.embedded.directory import PID_FILE
from redjob.embedded.process import HOST, ServerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class EmbeddedServer(ServerProcess):
    """A Valkey or Redis process on 127.0.0.1 that keeps its data in `directory`.

    A context manager: started on entry, stopped on exit. Not for use from several threads.
    """

    _STOP = signal.SIGTERM  # it flushes its file

    def __init__(
        self,
        directory: Path | str,
        *,
        port: int = 0,
        binary: ServerBinary | Path | None = None,
        appendonly: bool = True,
        extra_args: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Set a server up; nothing runs before `start`.

        Args:
            directory: Created when missing; holds the data, the log and the pid file.
            port: 0 takes a free one.
            binary: By default what `find_server` finds at the first start.
            appendonly: False keeps nothing on disk: quicker, for tests only.
            extra_args: Server options, such as `"--maxmemory", "64mb"`; they win over redjob's.
            environment: Laid over this process' own.
        """
        super().__init__(directory, port=port)
        self._binary = binary.path if isinstance(binary, ServerBinary) else binary
        self._appendonly = appendonly
        self._extra_args = tuple(extra_args)
        self._environment = dict(environment or {})

    @property
    def url(self) -> str:
        """The URL for clients; final once the server was started the first time."""
        return f"redis://{HOST}:{self.port}/0"

    def _find_program(self) -> None:
        self._binary = self._binary or require_server().path

    def _mark(self) -> str:
        return str(self.directory / PID_FILE)

    def _spawn(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [str(self._binary), *self._arguments()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=self.directory,
            env={**os.environ, **self._environment},
            close_fds=True,
            start_new_session=True,
        )

    def _answers(self, pid: int) -> bool:
        """A server that still loads its file answers, but not with PONG."""
        try:
            with socket.create_connection((HOST, self.port), timeout=1.0) as connection:
                connection.sendall(b"PING\r\nINFO server\r\nQUIT\r\n")
                reply = b"".join(iter(lambda: connection.recv(65_536), b""))
        except OSError:
            return False
        # With a password set the server refuses to say more, yet it is up.
        return reply.startswith(b"-NOAUTH") or (
            reply.startswith(b"+PONG") and f"process_id:{pid}\r\n".encode() in reply
        )

    def _arguments(self) -> list[str]:
        return [
            *("--bind", HOST),
            *("--port", str(self.port)),
            *("--dir", str(self.directory)),
            *("--daemonize", "no"),
            *("--pidfile", self._mark()),
            # The title would hide the arguments, by which a leftover server is recognised.
            *("--set-proc-title", "no"),
            *("--save", ""),
            *("--appendonly", "yes" if self._appendonly else "no"),
            *("--appendfsync", "everysec"),
            *("--maxmemory-policy", "noeviction"),
            *self._extra_args,
        ]
