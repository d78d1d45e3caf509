"""Ends a server when its parent dies, however it dies; under server.

The parent alone holds the write end of a pipe. The kernel closes it with the parent, even after
SIGKILL; then the guard, which does nothing but wait for that, asks the server to stop. Linux has
PR_SET_PDEATHSIG for this, but that fires at the end of the starting thread, and macOS has nothing.
"""

from __future__ import annotations

import signal
import subprocess

_WAIT_AND_ASK = 'read -r _; kill -"$1" "$0" 2>/dev/null'


class Guard:
    """Watches over one process from its start until `release`."""

    def __init__(self, pid: int, stop: signal.Signals = signal.SIGTERM) -> None:
        """Guard process `pid`, a child of this process; `stop` asks it to end."""
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _WAIT_AND_ASK, str(pid), str(stop.value)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # what ends the parent's process group must not end the guard
        )

    def release(self) -> None:
        """Stop guarding: the process has ended, and its pid may become somebody else's."""
        self._process.kill()
        self._process.communicate()
