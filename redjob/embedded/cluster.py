"""Servers of redjob's own that are the nodes of a Redis Cluster, for bench and tests.

Commands to them are the caller's to send: nothing here speaks Redis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from redjob.embedded.errors import ServerStartFailed
from redjob.embedded.ports import free_ports
from redjob.embedded.server import EmbeddedServer
from redjob.partitions import SLOTS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HOST = "127.0.0.1"
_PORT_TRIES = 8

# The first four are what users are told to set, so that tests and benchmarks meet the cluster that
# users have.
CONFIG = (
    # A dead primary is replaced within node-timeout + 1 to 2 s; the default of 15 s would stop a
    # partition for as long.
    *("--cluster-node-timeout", "2000"),
    # No replica is too far behind to be elected: a late copy can be mended from the journal, a
    # partition that nobody serves cannot fire.
    *("--cluster-replica-validity-factor", "0"),
    # One shard without a primary must not stop the others: their partitions depend on nothing there,
    # and a plain job draws an id in another partition. A minority still refuses writes.
    *("--cluster-require-full-coverage", "no"),
    # Whoever is cut off must not answer from old data.
    *("--cluster-allow-reads-when-down", "no"),
    # For one machine only: the address that clients are sent to, and replicas that sync at once
    # (5 s are for primaries with many replicas).
    *("--cluster-announce-ip", HOST),
    *("--repl-diskless-sync-delay", "0"),
)


class Command(Protocol):
    """Sends a command to the node of a number."""

    def __call__(self, number: int, *words: str | int) -> object:
        """Send it and return the reply."""
        ...


def start_node(
    directory: Path, binary: Path | None, extra_args: Sequence[str] = ()
) -> tuple[EmbeddedServer, int]:
    """Start an empty node that belongs to no cluster yet; return its cluster bus port too.

    Raises ServerNotFound, ServerStartFailed.
    """
    for last in range(_PORT_TRIES):
        # The bus port by hand: the usual port + 10000 can lie in the ephemeral range.
        port, bus_port = free_ports(2)
        own = ("--cluster-enabled", "yes", "--cluster-port", str(bus_port))
        server = EmbeddedServer(
            directory, port=port, binary=binary, extra_args=(*own, *CONFIG, *extra_args)
        )
        try:
            return server.start(), bus_port
        except ServerStartFailed as failed:
            if "in use" not in failed.reason or last == _PORT_TRIES - 1:
                raise
    raise AssertionError  # the loop returns or raises


def join(ports: Sequence[tuple[int, int]], primaries: int, command: Command) -> None:
    """Make nodes, given by port and bus port, know each other; the first `primaries` share the slots.

    They serve about 2 s later: an empty primary waits, in case it is one that was replaced.
    """
    for number in range(len(ports)):
        # Different from the start: equal ones would be told apart one by one, later.
        command(number, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
    for number in range(primaries):
        low, high = (SLOTS * n // primaries for n in (number, number + 1))
        command(number, "CLUSTER", "ADDSLOTSRANGE", low, high - 1)
    for port, bus_port in ports[1:]:
        command(0, "CLUSTER", "MEET", HOST, port, bus_port)
