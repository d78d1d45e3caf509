"""Free ports on loopback for server processes that must know several of them before they start."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress

# Below the ephemeral ranges of Linux (from 32768) and macOS (from 49152): while a server is down,
# no client's outgoing connection can sit on its port.
_PORTS = range(16_384, 32_768)


def free_ports(count: int) -> list[int]:
    """Return different free ports; somebody else may still be quicker, so start in a loop."""
    found: list[int] = []
    with ExitStack() as held:
        for port in random.SystemRandom().sample(_PORTS, 100 + count):
            probe = held.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
            if len(found) == count:
                return found
    message = f"no {count} free ports between {_PORTS.start} and {_PORTS.stop}"
    raise OSError(message)
