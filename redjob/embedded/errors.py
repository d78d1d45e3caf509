"""What can keep a server of our own from running; under binary, directory and server."""

from __future__ import annotations

from redjob.errors import RedjobError


class ServerNotFound(RedjobError):
    """Raised when this machine has no server program of the kind that is to run."""

    code = "server_not_found"


class ServerStartFailed(RedjobError):
    """Raised when a server process ended or stayed silent instead of answering."""

    code = "server_start_failed"

    def __init__(self, reason: str, log: str = "") -> None:
        super().__init__(f"the server did not start: {reason}" + (f"\n{log}" if log else ""))
        self.reason = reason
        self.log = log
