"""A server process of redjob's own, for demo, dev, bench and tests; stands beside the chain.

Invariants:

- One process at a time uses a directory: `start` holds a lock file that the kernel drops when
  its holder dies. Two servers on one append-only file would destroy it.
- A server does not outlive its parent: a guard stops it when the parent crashes. One that is
  still there is found by its pid file and stopped before the next one opens the same files.
- The port stays the same from the first start on, so that clients can come back after `restart`.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from redjob.embedded.binary import ServerBinary, require_server
from redjob.embedded.directory import PID_FILE, lock_directory, stop_leftover
from redjob.embedded.errors import ServerStartFailed
from redjob.embedded.guard import Guard
from redjob.embedded.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_HOST = "127.0.0.1"
_PORT_TRIES = 8
_POLL_S = 0.01
_LOG_FILE = "server.log"
_LOG_TAIL_LINES = 12


class _PortTaken(Exception):
    """Raised when somebody else bound the chosen port first."""


class EmbeddedServer:
    """A Valkey or Redis process on 127.0.0.1 that keeps its data in `directory`.

    A context manager: started on entry, stopped on exit. Not for use from several threads.
    """

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
        self.directory = Path(directory).absolute()
        self._port = port
        self._port_is_free_choice = port == 0
        self._binary = binary.path if isinstance(binary, ServerBinary) else binary
        self._appendonly = appendonly
        self._extra_args = tuple(extra_args)
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None
        self._lock: IO[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL for clients; final once the server was started the first time."""
        return f"redis://{_HOST}:{self.port}/0"

    @property
    def port(self) -> int:
        """The TCP port; 0 before the first start when none was asked for."""
        return self._port

    @property
    def pid(self) -> int | None:
        """The process id while the server was started and not stopped."""
        return None if self._process is None else self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        if self._process is None:
            return False
        if self._process.poll() is not None:
            self._release()
            return False
        return True

    def start(self, *, timeout_s: float = 30.0) -> Self:
        """Start the server and wait until it answers; a running one is left alone.

        Raises:
            ServerNotFound: There is no program to run.
            ServerStartFailed: It ended, stayed silent, or the directory is another process's.
        """
        if self.running:
            return self
        binary = self._binary = self._binary or require_server().path
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = lock_directory(self.directory)
        deadline = time.monotonic() + timeout_s
        try:
            stop_leftover(self.directory)
            self._launch_on_some_port(binary, deadline)
        except BaseException:
            self.kill()
            raise
        atexit.register(self._stop_at_exit, os.getpid())
        return self

    def stop(self, *, timeout_s: float = 10.0) -> None:
        """End the server by SIGTERM so that it flushes its file; SIGKILL after `timeout_s`."""
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
        self.kill()

    def kill(self) -> None:
        """End the server by SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._release()

    def restart(self, *, timeout_s: float = 30.0) -> Self:
        """Stop the server in good order and start it again on the same port and data."""
        self.stop()
        return self.start(timeout_s=timeout_s)

    def __enter__(self) -> Self:
        """Start the server."""
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        """Stop the server."""
        self.stop()

    def _launch_on_some_port(self, binary: Path, deadline: float) -> None:
        """Launch; when another process wins a freely chosen port, choose again."""
        for _ in range(_PORT_TRIES):
            if self._port_is_free_choice:
                self._port = _free_port()
            try:
                self._launch(binary, deadline)
            except _PortTaken:
                if not self._port_is_free_choice:
                    break
            else:
                self._port_is_free_choice = False
                return
        reason = f"port {self._port} is in use by another process"
        raise ServerStartFailed(reason)

    def _launch(self, binary: Path, deadline: float) -> None:
        log_path = self.directory / _LOG_FILE
        with log_path.open("ab") as log:
            log_start = log.tell()
            # A process group of its own: Ctrl-C in a terminal reaches the parent alone, which then
            # stops the server after its clients.
            self._process = subprocess.Popen(
                [binary, *self._arguments()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env={**os.environ, **self._environment},
                close_fds=True,
                start_new_session=True,
            )
        self._guard = Guard(self._process.pid)
        while not _answers(self._port, self._process.pid):
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(_POLL_S)
                self._dismiss_guard()
                tail = _log_since(log_path, log_start)
                if "Address already in use" in tail:
                    raise _PortTaken
                reason = f"{binary} ended with code {code}"
                raise ServerStartFailed(reason, tail)
            if time.monotonic() > deadline:
                reason = f"{binary} did not answer PING in time"
                raise ServerStartFailed(reason, _log_since(log_path, log_start))

    def _arguments(self) -> list[str]:
        return [
            *("--bind", _HOST),
            *("--port", str(self._port)),
            *("--dir", str(self.directory)),
            *("--daemonize", "no"),
            *("--pidfile", str(self.directory / PID_FILE)),
            # The title would hide the arguments, by which a leftover server is recognised.
            *("--set-proc-title", "no"),
            *("--save", ""),
            *("--appendonly", "yes" if self._appendonly else "no"),
            *("--appendfsync", "everysec"),
            *("--maxmemory-policy", "noeviction"),
            *self._extra_args,
        ]

    def _stop_at_exit(self, owner_pid: int) -> None:
        # A forked child runs the handlers it inherited: the server is not its to stop.
        if os.getpid() == owner_pid:
            self.stop()

    def _release(self) -> None:
        """Forget a process that has ended and let others use the directory."""
        self._process = None
        atexit.unregister(self._stop_at_exit)
        self._dismiss_guard()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _dismiss_guard(self) -> None:
        if self._guard is not None:
            self._guard.release()
            self._guard = None


def _free_port() -> int:
    try:
        return free_ports(1)[0]
    except OSError as exc:
        raise ServerStartFailed(str(exc)) from exc


def _answers(port: int, pid: int) -> bool:
    """Whether process `pid` itself answers on `port`; a stranger there, or LOADING, is a no."""
    try:
        with socket.create_connection((_HOST, port), timeout=1.0) as connection:
            connection.sendall(b"PING\r\nINFO server\r\nQUIT\r\n")
            reply = b"".join(iter(lambda: connection.recv(65_536), b""))
    except OSError:
        return False
    # With a password set the server refuses to say more, yet it is up.
    return reply.startswith(b"-NOAUTH") or (
        reply.startswith(b"+PONG") and f"process_id:{pid}\r\n".encode() in reply
    )


def _log_since(log_path: Path, offset: int) -> str:
    """The last lines the server wrote since `offset`."""
    with log_path.open("rb") as log:
        log.seek(offset)
        lines = log.read().decode(errors="replace").splitlines()
    return "\n".join(lines[-_LOG_TAIL_LINES:])
