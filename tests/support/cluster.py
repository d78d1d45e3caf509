"""A Redis Cluster for tests: primaries with a replica each, made and treated by commands alone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal, Self

import pytest
from redis.exceptions import RedisError, ResponseError

from redjob.embedded.cluster import join
from redjob.partitions import SLOTS
from tests.support.cluster_node import ClusterNode, Row, launch_node
from tests.support.processes import wait_until
from tests.support.slot_move import SlotMove

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from types import TracebackType

_HEALTHY_WITHIN_S = 20.0
_POLL_S = 0.02


class ClusterNodes:
    """Primaries and as many replicas on this machine; a context manager.

    Node i is the first replica of node i - `primaries` until something happens to them.
    """

    def __init__(
        self,
        directory: Path,
        program: Path,
        *,
        primaries: int = 3,
        extra_args: Sequence[str] = (),
    ) -> None:
        """Set a cluster up; nothing runs before `start`."""
        self.nodes: list[ClusterNode] = []
        self._directory = directory
        self._program = program
        self._primaries = primaries
        self._extra_args = tuple(extra_args)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The URL for clients, with one node to start from: they must find the others."""
        return self.url_of(self.nodes[:1])

    def url_of(self, nodes: Iterable[ClusterNode]) -> str:
        """The URL that names these nodes to start from."""
        return f"redis+cluster://{','.join(node.address for node in nodes)}"

    def start(self) -> Self:
        """Start the nodes, make them a cluster and wait until it serves every slot.

        Most of the time is the server's own: an empty primary serves no sooner than 2 s after its
        start, in case it is one that comes back and has been replaced.
        """
        try:
            self._create()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End all nodes at once: an orderly stop would let each primary wait for its replica."""
        for node in self.nodes:
            node.close()

    # who is who

    def primaries(self) -> list[ClusterNode]:
        """The nodes that own slots now, by their first slot."""
        owned = self._owned()
        return sorted(owned, key=lambda node: min(owned[node]))

    def primary_of(self, slot: int) -> ClusterNode:
        """The node that owns a slot now."""
        return next(node for node, slots in self._owned().items() if slot in slots)

    def replicas_of(self, primary: ClusterNode) -> list[ClusterNode]:
        """The nodes that follow this one, which may be down, by their own word."""
        rows = {node: node.own_row() for node in self._answering()}
        return [node for node, row in rows.items() if row.primary_id == primary.node_id]

    def wait_healthy(self, *, within_s: float = _HEALTHY_WITHIN_S) -> None:
        """Wait until all nodes that are up agree that they serve every slot, replicas in step.

        Nodes that are killed or paused are not waited for, but their slots must have new owners.
        """
        deadline = time.monotonic() + within_s
        while complaint := self._complaint():
            if time.monotonic() > deadline:
                pytest.fail(f"the cluster is not healthy within {within_s:g} s: {complaint}")
            time.sleep(_POLL_S)

    # what is done to it

    def fail_over(
        self,
        primary: ClusterNode,
        how: Literal["FORCE", "TAKEOVER"] | None = None,
        *,
        within_s: float = _HEALTHY_WITHIN_S,
    ) -> ClusterNode:
        """Let a replica take the place of a primary and return it once it owns the slots.

        Without `how` the primary hands over what it has; FORCE does not ask it, TAKEOVER asks
        nobody.
        """
        replica = self.replicas_of(primary)[0]
        replica.command("CLUSTER", "FAILOVER", *([how] if how else []))
        self.wait_primary(replica, within_s=within_s)
        return replica

    def follow(self, replica: ClusterNode, primary: ClusterNode) -> None:
        """Make one a replica of the other as soon as it has heard of it."""

        def followed() -> bool:
            try:
                replica.command("CLUSTER", "REPLICATE", primary.node_id)
            except ResponseError as error:
                if "Unknown node" not in str(error):
                    raise
                return False
            return True

        wait_until(followed, within_s=_HEALTHY_WITHIN_S, what=f"{replica} knows {primary}")

    def wait_primary(self, node: ClusterNode, *, within_s: float = _HEALTHY_WITHIN_S) -> None:
        """Wait until a node has slots of its own."""
        wait_until(lambda: node in self.primaries(), within_s=within_s, what=f"{node} is a primary")

    def slot_move(self, slot: int, target: ClusterNode) -> SlotMove:
        """Plan to move a slot to another primary; nothing is done yet."""
        source = self.primary_of(slot)
        others = [node for node in self.primaries() if node not in {source, target}]
        return SlotMove(slot, source, target, others)

    def flush(self) -> None:
        """Empty every primary, and by that its replicas."""
        for node in self.primaries():
            node.redis.flushall()

    def remove(self, prefix: str) -> None:
        """Remove the keys that begin so."""
        for node in self.primaries():
            # One by one: keys of different slots may not be in one command.
            pipe = node.redis.pipeline(transaction=False)
            for key in node.redis.scan_iter(f"{prefix}*", count=10_000):
                pipe.unlink(key)
            pipe.execute()

    # what it tells

    def info(self, section: str) -> dict[str, dict[str, Any]]:
        """A section of INFO of each primary, by its address."""
        return {node.address: node.redis.info(section) for node in self.primaries()}

    def calls(self) -> dict[str, dict[str, int]]:
        """How often each primary has run each command (`cluster|nodes`), by its address."""
        return {
            address: {name.removeprefix("cmdstat_"): found["calls"] for name, found in info.items()}
            for address, info in self.info("commandstats").items()
        }

    def reset_calls(self) -> None:
        """Count calls anew on every node."""
        for node in self._answering():
            node.redis.config_resetstat()

    # creation

    def _create(self) -> None:
        ports: list[tuple[int, int]] = []
        for number in range(2 * self._primaries):
            directory = self._directory / f"node-{number}"
            node, bus_port = launch_node(directory, self._program, self._extra_args)
            self.nodes.append(node)
            ports.append((node.port, bus_port))
        primaries, replicas = self.nodes[: self._primaries], self.nodes[self._primaries :]
        join(ports, len(primaries), lambda number, *words: self.nodes[number].command(*words))
        for primary, replica in zip(primaries, replicas, strict=True):
            self.follow(replica, primary)
        self.wait_healthy()

    # looking

    def _answering(self) -> list[ClusterNode]:
        return [node for node in self.nodes if node.answers]

    def _owned(self) -> dict[ClusterNode, set[int]]:
        """Each owner's slots: where two nodes claim one, the later epoch is right.

        The other has been replaced and has not heard of it yet.
        """
        claims = [(node, node.own_row()) for node in self._answering()]
        claims.sort(key=lambda claim: claim[1].epoch, reverse=True)
        taken: set[int] = set()
        owned: dict[ClusterNode, set[int]] = {}
        for node, row in claims:
            slots = {slot for part in row.slots for slot in part} - taken
            if row.serves and slots:
                owned[node] = slots
                taken |= slots
        return owned

    def _complaint(self) -> str | None:
        """What is not as it should be yet."""
        nodes = self._answering()
        ids = {node.node_id for node in nodes}
        tables: set[frozenset[tuple[str, tuple[range, ...]]]] = set()
        for node in nodes:
            try:
                rows = node.rows()
                trouble = _trouble(node, rows, ids)
            except RedisError as error:
                trouble = f"{error!r}"
            else:
                tables.add(frozenset((row.node_id, row.slots) for row in rows if row.serves))
            if trouble:
                return f"{node}: {trouble}"
        return "the nodes do not agree who owns what" if len(tables) > 1 else None


def _trouble(node: ClusterNode, rows: list[Row], ids: set[str]) -> str | None:
    """What keeps one node from serving, among the nodes with these ids."""
    seen = {row.node_id: row for row in rows if row.node_id in ids}
    if seen.keys() != ids:
        return f"knows {len(seen)} of {len(ids)} nodes"
    for row in seen.values():
        if not row.linked or row.flags & {"fail", "fail?", "handshake", "noaddr"}:
            return f"holds {row.node_id} for {sorted(row.flags)}, linked: {row.linked}"
    served = sum(len(part) for row in seen.values() if row.serves for part in row.slots)
    if served != SLOTS:
        return f"knows owners of {served} slots"
    if "cluster_state:ok" not in node.command("CLUSTER", "INFO"):
        return "says that the cluster is down"
    if node.redis.info("replication").get("master_link_status", "up") != "up":
        return "is a replica out of step"
    return None
