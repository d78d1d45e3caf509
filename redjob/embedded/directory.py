"""Who owns a server's directory: one live process, and no server of a dead one; under server."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import IO

from redjob.embedded.errors import ServerStartFailed

PID_FILE = "server.pid"
_LOCK_FILE = "server.lock"
_POLL_S = 0.01


def lock_directory(directory: Path) -> IO[bytes]:
    """Keep other processes from running a server here until the result is closed.

    Raises:
        ServerStartFailed: Another process has it.
    """
    lock = (directory / _LOCK_FILE).open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        reason = f"{directory} is in use by a server of another process"
        raise ServerStartFailed(reason) from None
    return lock


def stop_leftover(
    directory: Path, mark: str, stop: signal.Signals, *, timeout_s: float = 10.0
) -> None:
    """Stop a server whose parent died; the caller holds the directory's lock.

    Args:
        directory: Where its pid file is.
        mark: The argument that it was started with and that no other process has.
        stop: The signal that asks it to end.
        timeout_s: Then it is killed.

    Raises:
        ServerStartFailed: It does not end.
    """
    pid_file = directory / PID_FILE
    try:
        pid = int(pid_file.read_text())
    except (FileNotFoundError, ValueError):
        return
    started = time.monotonic()
    while _has_argument(pid, mark):
        waited_s = time.monotonic() - started
        if waited_s > 2 * timeout_s:
            reason = f"process {pid} holds {directory} and does not end"
            raise ServerStartFailed(reason)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, stop if waited_s < timeout_s else signal.SIGKILL)
        time.sleep(_POLL_S)
    pid_file.unlink(missing_ok=True)


def _has_argument(pid: int, mark: str) -> bool:
    """Whether `pid` is alive and was started with this argument (pids are used again)."""
    if Path("/proc/self/cmdline").exists():
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False
        return os.fsencode(mark) in arguments.split(b"\0")
    # macOS has no /proc, and small Linux images have no ps.
    listing = subprocess.run(
        ["/bin/ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, check=False
    )
    return os.fsencode(mark) in listing.stdout
