"""A slot of a cluster on its way from one primary to another, one step at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.cluster_node import ClusterNode

_ALL = 1_000_000


class SlotMove:
    """The steps of moving a slot, as resharding tools do it; a test may stop between any two.

    Between `begin` and `finish` the source answers ASK for keys that it has no longer, the target
    serves them after ASKING, and a call on keys of both sides gets TRYAGAIN.
    """

    def __init__(
        self, slot: int, source: ClusterNode, target: ClusterNode, others: Sequence[ClusterNode]
    ) -> None:
        """Plan a move; `others` are the primaries that are told at the end."""
        self.slot = slot
        self.source = source
        self.target = target
        self._others = others

    def begin(self) -> SlotMove:
        """Open both ends, the target first: the source sends clients there at once."""
        self.target.command("CLUSTER", "SETSLOT", self.slot, "IMPORTING", self.source.node_id)
        self.source.command("CLUSTER", "SETSLOT", self.slot, "MIGRATING", self.target.node_id)
        return self

    def keys(self) -> list[str]:
        """The keys of the slot that are still at the source."""
        found: list[str] = self.source.command("CLUSTER", "GETKEYSINSLOT", self.slot, _ALL)
        return found

    def migrate(self, *keys: str) -> None:
        """Move these keys; each is at one side at any moment."""
        if keys:
            host, port = "127.0.0.1", self.target.port
            self.source.command("MIGRATE", host, port, "", 0, 5000, "KEYS", *keys)

    def finish(self) -> None:
        """Move what is left and give the slot to the target; it must learn it first.

        The other way round, a crash in between would leave a slot that nobody owns.
        """
        self.migrate(*self.keys())
        for node in (self.target, self.source, *self._others):
            node.command("CLUSTER", "SETSLOT", self.slot, "NODE", self.target.node_id)

    def cancel(self) -> None:
        """Close both ends; keys that have moved must be brought back by hand."""
        for node in (self.source, self.target):
            node.command("CLUSTER", "SETSLOT", self.slot, "STABLE")
