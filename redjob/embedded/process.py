"""A server process of our own: locked in, started, guarded and stopped; under server and postgres.

Invariants:

- One process at a time uses a directory: `start` holds a lock file that the kernel drops when
  its holder dies. Two servers on one set of files would destroy it.
- A server does not outlive its parent: a guard stops it when the parent crashes. One that is
  still there is found by its pid file and stopped before the next one opens the same files.
- The port stays the same from the first start on, so that clients can come back after `restart`.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import IO, ClassVar, Self

from redjob.embedded.directory import PID_FILE, lock_directory, stop_leftover
from redjob.embedded.errors import ServerStartFailed
from redjob.embedded.guard import Guard
from redjob.embedded.ports import free_ports

HOST = "127.0.0.1"
_PORT_TRIES = 8
_POLL_S = 0.01
_RETRY_S = 0.1
_LOG_FILE = "server.log"
_LOG_TAIL_LINES = 12


class _PortTaken(Exception):
    """Raised when somebody else bound the chosen port first."""


class _StillHeld(Exception):
    """Raised when processes of the server before this one have not ended yet."""


class ServerProcess(ABC):
    """A server on 127.0.0.1 that keeps its files in `directory`.

    A context manager: started on entry, stopped on exit. Not for use from several threads.
    """

    _STOP: ClassVar[signal.Signals]  # asks it to end in good order
    _STILL_HELD: ClassVar[str | None] = None  # what it says when one before it has not quite ended

    def __init__(self, directory: Path | str, *, port: int) -> None:
        """Set a server up; nothing runs before `start`. `port` 0 takes a free one."""
        self.directory = Path(directory).absolute()
        self._port = port
        self._port_is_free_choice = port == 0
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None
        self._lock: IO[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL for clients; final once the server was started the first time."""

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
        self._find_program()
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as exc:
            reason = f"{exc.filename}: {exc.strerror}"
            raise ServerStartFailed(reason) from exc
        self._lock = lock_directory(self.directory)
        deadline = time.monotonic() + timeout_s
        try:
            stop_leftover(self.directory, self._mark(), self._STOP)
            self._prepare()
            self._launch_on_some_port(deadline)
        except BaseException:
            self.kill()
            raise
        atexit.register(self._stop_at_exit, os.getpid())
        return self

    def stop(self, *, timeout_s: float = 10.0) -> None:
        """End the server in good order, so that its files are whole; SIGKILL after `timeout_s`."""
        if self._process is not None:
            self._process.send_signal(self._STOP)
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

    @abstractmethod
    def _find_program(self) -> None:
        """Settle on a program. Raises ServerNotFound."""

    @abstractmethod
    def _mark(self) -> str:
        """The argument by which a server of this directory is told from every other process."""

    def _prepare(self) -> None:  # noqa: B027 - not every server needs something
        """Make what the server needs on disk; the directory is ours. Raises ServerStartFailed."""

    @abstractmethod
    def _spawn(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start the process on the port, in a session of its own.

        Ctrl-C in a terminal then reaches the parent alone, which stops the server after its clients.
        """

    @abstractmethod
    def _answers(self, pid: int) -> bool:
        """Whether process `pid` itself serves on the port; a stranger there is a no."""

    def _launch_on_some_port(self, deadline: float) -> None:
        """Launch; when another process wins a freely chosen port, choose again."""
        tries = _PORT_TRIES
        while tries:
            if self._port_is_free_choice:
                self._port = _free_port()
            try:
                self._launch(deadline)
            except _PortTaken:
                tries = tries - 1 if self._port_is_free_choice else 0
            except _StillHeld:
                time.sleep(_RETRY_S)
            else:
                self._port_is_free_choice = False
                return
        reason = f"port {self._port} is in use by another process"
        raise ServerStartFailed(reason)

    def _launch(self, deadline: float) -> None:
        log_path = self.directory / _LOG_FILE
        with log_path.open("ab") as log:
            log_start = log.tell()
            process = self._process = self._spawn(log)
        self._guard = Guard(process.pid, self._STOP)
        (self.directory / PID_FILE).write_text(str(process.pid))
        while not self._answers(process.pid):
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(_POLL_S)
                self._dismiss_guard()
                self._ended(code, _log_since(log_path, log_start), time.monotonic() > deadline)
            if time.monotonic() > deadline:
                reason = f"{_program(process)} did not answer in time"
                raise ServerStartFailed(reason, _log_since(log_path, log_start))

    def _ended(self, code: int, tail: str, too_late: bool) -> None:
        """Tell why the process ended at once."""
        if "Address already in use" in tail:
            raise _PortTaken
        if self._STILL_HELD is not None and self._STILL_HELD in tail and not too_late:
            raise _StillHeld
        assert self._process is not None
        reason = f"{_program(self._process)} ended with code {code}"
        raise ServerStartFailed(reason, tail)

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
            (self.directory / PID_FILE).unlink(missing_ok=True)
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


def _program(process: subprocess.Popen[bytes]) -> str:
    arguments = process.args
    assert isinstance(arguments, list), "as subclasses start it"
    return str(arguments[0])


def _log_since(log_path: Path, offset: int) -> str:
    """The last lines the server wrote since `offset`."""
    with log_path.open("rb") as log:
        log.seek(offset)
        lines = log.read().decode(errors="replace").splitlines()
    return "\n".join(lines[-_LOG_TAIL_LINES:])
