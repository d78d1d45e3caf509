"""What the nodes of a cluster say of themselves: ids, slots, and slots that are on the way."""

from __future__ import annotations

from typing import NamedTuple

from redjob.errors import ServerUnsuitable, StoreUnavailable
from redjob.store.routes import Address
from redjob.store.servers import Refusal, Servers

_USELESS = frozenset({"fail", "noaddr", "handshake"})


class Node(NamedTuple):
    """One line of CLUSTER NODES. Only a node's own line tells what is on the way: slot → other's id."""

    id: str
    address: Address
    hostname: str
    flags: frozenset[str]
    primary_id: str | None
    epoch: int
    slots: tuple[range, ...]
    migrating: dict[int, str]
    importing: dict[int, str]

    @property
    def is_primary(self) -> bool:
        """Whether it can have slots."""
        return "master" in self.flags and not self.flags & _USELESS

    def has(self, slot: int) -> bool:
        """Whether it believes that a slot is its own."""
        return any(slot in part for part in self.slots)

    def is_named(self, text: str) -> bool:
        """Whether HOST:PORT means this node."""
        return text in {str(self.address), f"{self.hostname}:{self.address.port}"}


def read_nodes(text: str, asked: Address) -> list[Node]:
    """Read the reply of CLUSTER NODES; a node that does not know its own address is the one asked."""
    return [_node(line.split(), asked) for line in text.splitlines() if line]


def primaries_by_themselves(servers: Servers) -> list[Node]:
    """Ask each primary for its own line; those that do not answer are left out.

    Raises StoreUnavailable, ServerUnsuitable (the user may not ask).
    """
    addresses = servers.find()
    found: dict[str, Node] = {}
    for node in _seen_by_any(servers, addresses):
        if node.flags & _USELESS:  # but not a replica: it may be a primary since a moment
            continue
        try:
            own = next(one for one in _nodes_of(servers, node.address) if "myself" in one.flags)
        except StoreUnavailable:
            continue
        if own.is_primary:
            found[own.id] = own
    return sorted(found.values(), key=lambda node: node.address)


def _seen_by_any(servers: Servers, addresses: list[Address]) -> list[Node]:
    trouble: StoreUnavailable | None = None
    for address in addresses:
        try:
            return _nodes_of(servers, address)
        except StoreUnavailable as exc:
            trouble = exc
    raise trouble or StoreUnavailable(f"{servers.shown} has no primary", outcome="refused")


def _nodes_of(servers: Servers, address: Address) -> list[Node]:
    (reply,) = servers.ask(address, ("CLUSTER", "NODES"))
    if isinstance(reply, Refusal):
        raise ServerUnsuitable(f"{address} does not tell who its nodes are: {reply.text}")
    return read_nodes(reply.decode(), address)


def _node(words: list[str], asked: Address) -> Node:
    endpoint, *names = words[1].split(",")
    host, _, port = endpoint.partition("@")[0].rpartition(":")
    whole = [word.partition("-") for word in words[8:] if not word.startswith("[")]
    open_ends = [word.strip("[]") for word in words[8:] if word.startswith("[")]
    out = (end.split("->-") for end in open_ends if "->-" in end)
    into = (end.split("-<-") for end in open_ends if "-<-" in end)
    return Node(
        id=words[0],
        address=Address(host or asked.host, int(port)),
        hostname=names[0] if names else "",
        flags=frozenset(words[2].split(",")),
        primary_id=None if words[3] == "-" else words[3],
        epoch=int(words[6]),
        slots=tuple(range(int(low), int(high or low) + 1) for low, _, high in whole),
        migrating={int(slot): other for slot, other in out},
        importing={int(slot): other for slot, other in into},
    )
