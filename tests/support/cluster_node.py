"""One node of a test's Redis Cluster: its process, a connection to it, and what it says of itself."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from redjob.embedded.cluster import HOST, start_node

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from redjob.embedded import EmbeddedServer


@dataclass(frozen=True, slots=True)
class Row:
    """One line of CLUSTER NODES: what a node believes of itself or of another."""

    node_id: str
    flags: frozenset[str]
    primary_id: str | None
    epoch: int
    linked: bool
    slots: tuple[range, ...]

    @property
    def serves(self) -> bool:
        """Whether it is a primary that has slots."""
        return "master" in self.flags and bool(self.slots)


def parse_rows(text: str) -> list[Row]:
    """Read the reply of CLUSTER NODES; slots on the move stay with the node that owns them."""
    return [_row(line.split()) for line in text.splitlines()]


def _row(words: list[str]) -> Row:
    ranges = [word.partition("-") for word in words[8:] if not word.startswith("[")]
    return Row(
        node_id=words[0],
        flags=frozenset(words[2].split(",")),
        primary_id=None if words[3] == "-" else words[3],
        epoch=int(words[6]),
        linked=words[7] == "connected",
        slots=tuple(range(int(low), int(high or low) + 1) for low, _, high in ranges),
    )


class ClusterNode:
    """A node that runs until it is killed, and that comes back on the same ports and data."""

    def __init__(self, server: EmbeddedServer) -> None:
        """Take a server that was started in cluster mode."""
        self.server = server
        self.port = server.port
        self.address = f"{HOST}:{self.port}"
        self.paused = False
        # Node, not cluster: each question is for this node. No retry: a test sees each refusal.
        self.redis: Any = Redis(
            host=HOST,
            port=self.port,
            decode_responses=True,
            encoding_errors="surrogateescape",  # keys need not be text
            socket_timeout=5,
            retry=Retry(NoBackoff(), 0),
        )
        self.node_id: str = self.command("CLUSTER", "MYID")

    def __repr__(self) -> str:
        return f"<node {self.address}>"

    @property
    def answers(self) -> bool:
        """Whether it runs and is not paused."""
        return self.server.running and not self.paused

    def command(self, *words: str | int) -> Any:
        """Send any command to this node and return the raw reply."""
        return self.redis.execute_command(*words)

    def rows(self) -> list[Row]:
        """What this node believes of all."""
        return parse_rows(self.command("CLUSTER", "NODES"))

    def own_row(self) -> Row:
        """What this node believes of itself."""
        return next(row for row in self.rows() if "myself" in row.flags)

    def kill(self) -> None:
        """End it as a crash would."""
        self.server.kill()
        self.paused = False

    def pause(self) -> None:
        """Freeze it: its connections stay open and nothing is answered."""
        self._signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        """Let a frozen one go on."""
        self._signal(signal.SIGCONT)
        self.paused = False

    def start(self) -> None:
        """Start it again after `kill`, with its data and its place in the cluster."""
        self.server.start()

    def restart(self) -> None:
        """Stop it in good order and start it again."""
        self.server.restart()

    def close(self) -> None:
        """End it for good."""
        self.redis.close()
        self.kill()

    def _signal(self, number: int) -> None:
        assert self.server.running, f"{self} does not run"
        assert self.server.pid is not None
        os.kill(self.server.pid, number)


def launch_node(
    directory: Path, program: Path, extra_args: Sequence[str]
) -> tuple[ClusterNode, int]:
    """Start an empty node that belongs to no cluster yet; return its cluster bus port too."""
    server, bus_port = start_node(directory, program, extra_args)
    return ClusterNode(server), bus_port
