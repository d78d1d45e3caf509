"""Moves one slot of a cluster to another primary; run again after a crash, it goes on where it was.

Where the server can (Valkey 9), it is told to move the slot as a whole: it copies beside the traffic,
and holds calls back for a moment at the end. Elsewhere keys go in batches, as resharding tools do it.

Nothing of redjob's own freezes the partition meanwhile: the cluster does. A script declares every key
that it touches, so while some of them are here and some there (or not made yet) it is refused with
TRYAGAIN before it starts, and callers ask again. So there is no moment at which half of a partition
answers, and no lock that a killed mover could leave behind. For the same reason a move is cancelled by
finishing it and moving back: if the source took its slot back at once, it would answer from what is left.

| what ends in the middle          | what is left                              | run again                   |
|----------------------------------|-------------------------------------------|-----------------------------|
| the mover, slot as a whole       | the servers finish by themselves          | waits for them              |
| the mover, in batches            | both ends open, calls refused (TRYAGAIN)  | opens both again, goes on   |
| a batch, by a broken connection  | some keys at both ends, the source's count| sent again, replacing       |
| between the last two SETSLOT     | the target owns it, the source may not know | tells all again           |
| the source, replaced by a replica| it may have made keys anew                | sends, never replacing: tells |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from redjob.calls.call import Arg
from redjob.clock import Clock
from redjob.errors import RedjobError
from redjob.store.cluster_nodes import Node, primaries_by_themselves
from redjob.store.servers import Refusal, Servers

Way = Literal["whole", "keys"]
REPLY_S = 30.0  # a batch stops the source while it is sent
_BATCH_TIMEOUT_MS = 10_000
_FIRST_BATCH, _LARGEST_BATCH = 16, 1000
_QUICK_S, _SLOW_S = 0.02, 0.1  # a batch stops all other calls at both ends for its time
_TRIES = 5
_LOOK_S = 0.02
_ENDED = frozenset({"success", "failed", "canceled", "cancelled"})


class SlotNotMoved(RedjobError):
    """Raised when a slot cannot be moved, or not further; the text says what to do."""

    code = "slot_not_moved"


class Ends(NamedTuple):
    """Who has a slot, who is to have it, and the other primaries."""

    source: Node
    target: Node
    others: tuple[Node, ...]


class SlotMove:
    """One slot's way; each method may be repeated after whatever happened."""

    def __init__(self, servers: Servers, slot: int, clock: Clock) -> None:
        self._servers = servers
        self._clock = clock
        self.slot = slot
        self.keys = 0  # that were sent in batches

    def owner(self) -> Node:
        """The primary that has the slot: of two that claim it, the later epoch is right."""
        return self._owner(primaries_by_themselves(self._servers))

    def ends(self, to: str) -> Ends:
        """Find both ends of a move to HOST:PORT. Raises SlotNotMoved for what is no primary."""
        nodes = primaries_by_themselves(self._servers)
        target = next((node for node in nodes if node.is_named(to)), None)
        if target is None:
            there = ", ".join(str(node.address) for node in nodes)
            raise SlotNotMoved(f"{to} is no primary that answers; those are {there}")
        source = self._owner(nodes)
        others = tuple(node for node in nodes if node.id not in {source.id, target.id})
        return Ends(source, target, others)

    def is_under_way(self, ends: Ends) -> bool:
        """Whether this move was begun and is not finished. Raises SlotNotMoved for one to elsewhere."""
        running = self._running(ends.source)
        if running is not None:
            self._must_be(ends, running["target_node"])
            return True
        importing = [node for node in (ends.target, *ends.others) if self.slot in node.importing]
        for node in importing:
            self._must_be(ends, node.id)
        migrating_to = ends.source.migrating.get(self.slot)
        # A replica that took the place of the other end has its keys, and knows of no move.
        if migrating_to is not None and not (importing or self._count(ends.target)):
            self._must_be(ends, migrating_to)
        return bool(importing) or migrating_to is not None

    def begin(self, ends: Ends) -> Way:
        """Begin to move the slot as a whole where the server can; else nothing is done yet.

        Raises SlotNotMoved, StoreUnavailable.
        """
        if self._running(ends.source) is not None:
            return "whole"
        return "whole" if not self.is_under_way(ends) and self._begin_whole(ends) else "keys"

    def finish(self, ends: Ends, way: Way) -> None:
        """Move the slot, or what is left of it. Raises SlotNotMoved, StoreUnavailable."""
        if way == "whole":
            self._await_whole(ends)
        else:
            self._send_keys(ends)
            self.settle(ends)

    def settle(self, ends: Ends) -> None:
        """Tell every primary who has the slot, the new owner first.

        The other way round, a crash in between would leave a slot that nobody has.
        """
        for node in (ends.target, ends.source):
            self._insist(node, self._setslot("NODE", ends.target))
        for node in ends.others:  # they would hear of it from the target as well
            self._servers.ask(node.address, self._setslot("NODE", ends.target))

    def cancel(self) -> Node | None:
        """Put a slot back that is on its way; the node that keeps it, None where it is on no way.

        Raises SlotNotMoved, StoreUnavailable.
        """
        nodes = primaries_by_themselves(self._servers)
        source = self._owner(nodes)
        if self._running(source) is not None:
            self._cancel_whole(source)
            return source
        other = self._other_end(nodes, source)
        if other is None:
            return None
        others = tuple(node for node in nodes if node.id not in {source.id, other.id})
        if self._count(other):
            for ends in (Ends(source, other, others), Ends(other, source, others)):
                self.finish(ends, self.begin(ends))
        else:
            for node in (source, other):
                self._insist(node, self._setslot("STABLE"))
        return source

    def _other_end(self, nodes: Sequence[Node], source: Node) -> Node | None:
        importing = next(
            (node for node in nodes if node.id != source.id and self.slot in node.importing), None
        )
        target_id = source.migrating.get(self.slot)
        if importing is not None or target_id is None:
            return importing
        known = next((node for node in nodes if node.id == target_id), None)
        if known is None:
            raise SlotNotMoved(
                f"slot {self.slot} is on its way to {target_id}, which does not answer or is no primary "
                "any more: bring it back, or finish the move with --to whoever took its place"
            )
        return known

    def _count(self, node: Node) -> int:
        return int(self._insist(node, ("CLUSTER", "COUNTKEYSINSLOT", self.slot)))

    def _owner(self, nodes: Sequence[Node]) -> Node:
        claims = [node for node in nodes if node.has(self.slot)]
        if not claims:
            raise SlotNotMoved(f"no primary that answers has slot {self.slot}; mend the cluster")
        return max(claims, key=lambda node: node.epoch)

    def _must_be(self, ends: Ends, target_id: str) -> None:
        if target_id != ends.target.id:
            going = next((str(node.address) for node in ends.others if node.id == target_id), "")
            raise SlotNotMoved(
                f"slot {self.slot} is on its way to {going or target_id}: finish that move, "
                "or put it back with --cancel"
            )

    # the slot as a whole

    def _running(self, source: Node) -> dict[str, str] | None:
        """The server's own move of this slot out of a node, while it runs."""
        return next(
            (one for one in self._told(source, "EXPORT") if one["state"] not in _ENDED), None
        )

    def _told(self, node: Node, way: Literal["EXPORT", "IMPORT"]) -> list[dict[str, str]]:
        """What a node tells of its own moves of this slot, the latest first."""
        (reply,) = self._servers.ask(node.address, ("CLUSTER", "GETSLOTMIGRATIONS"))
        if isinstance(reply, Refusal):  # it knows no such thing
            return []
        wanted = f"{self.slot}-{self.slot}"
        told = [_pairs(one) for one in reply]
        return [one for one in told if one["operation"] == way and wanted in one["slot_ranges"]]

    def _begin_whole(self, ends: Ends) -> bool:
        """Whether the server moves the slot by itself now; not where it cannot."""
        command: tuple[Arg, ...] = (
            "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", self.slot, self.slot, "NODE", ends.target.id,
        )  # fmt: skip
        (reply,) = self._servers.ask(ends.source.address, command)
        if not isinstance(reply, Refusal):
            return True
        if "unknown subcommand" in reply.text:
            return False
        raise SlotNotMoved(f"{ends.source.address}: {reply.text}")

    def _await_whole(self, ends: Ends) -> None:
        while True:
            exports = self._told(ends.source, "EXPORT")
            if not exports:
                raise SlotNotMoved("the source has forgotten the move: it restarted; run it again")
            latest = exports[0]
            if latest["state"] == "success":
                return
            if latest["state"] in _ENDED:
                ended = [latest, *self._told(ends.target, "IMPORT")[:1]]
                words = ", ".join(f"{one['state']} {one['message'].strip()}" for one in ended)
                raise SlotNotMoved(f"the servers gave up: {words}; nothing has changed")
            self._clock.sleep(_LOOK_S)

    def _cancel_whole(self, source: Node) -> None:
        (reply,) = self._servers.ask(source.address, ("CLUSTER", "GETSLOTMIGRATIONS"))
        running = [one for one in map(_pairs, reply) if one["state"] not in _ENDED]
        if any(one["slot_ranges"] != f"{self.slot}-{self.slot}" for one in running):
            raise SlotNotMoved(
                f"{source.address} moves other slots too, and can only cancel all: "
                "CLUSTER CANCELSLOTMIGRATIONS there"
            )
        self._insist(source, ("CLUSTER", "CANCELSLOTMIGRATIONS"))
        while self._running(source) is not None:
            self._clock.sleep(_LOOK_S)

    # key by key

    def _send_keys(self, ends: Ends) -> None:
        source, target = ends.source, ends.target
        # A copy at the target is an interrupted batch's, unless the source is not what it was then.
        replace = target.importing.get(self.slot, source.id) == source.id
        if replace:
            self._insist(target, self._setslot("IMPORTING", source))
        else:
            # It stays open from the old source, so that the next run knows of it, too. Redis 7 holds
            # an open slot whose owner was replaced for nobody's, and would take no keys.
            self._insist(target, self._setslot("NODE", source))
        self._insist(source, self._setslot("MIGRATING", target))
        count = _FIRST_BATCH
        while keys := self._insist(source, ("CLUSTER", "GETKEYSINSLOT", self.slot, count)):
            before = self._clock.monotonic()
            self._send_batch(ends, keys, replace=replace)
            took_s = self._clock.monotonic() - before
            self.keys += len(keys)
            if took_s < _QUICK_S:
                count = min(_LARGEST_BATCH, 2 * count)
            elif took_s > _SLOW_S:
                count = max(1, count // 2)

    def _send_batch(self, ends: Ends, keys: Sequence[bytes], *, replace: bool) -> None:
        user = self._servers.credentials()
        command: tuple[Arg, ...] = (
            "MIGRATE", ends.target.address.host, ends.target.address.port, "", 0, _BATCH_TIMEOUT_MS,
            *(("REPLACE",) if replace else ()), *(("AUTH2", *user) if user else ()), "KEYS", *keys,
        )  # fmt: skip
        for tries_left in reversed(range(_TRIES)):
            (reply,) = self._servers.ask(ends.source.address, command)
            if not isinstance(reply, Refusal):
                return
            if "BUSYKEY" in reply.text:
                raise SlotNotMoved(
                    f"the source was replaced by a replica during the move, and some keys of slot "
                    f"{self.slot} are at both ends: compare them, delete those at {ends.source.address} "
                    "or at the target, and run it again"
                )
            if "IOERR" not in reply.text or not tries_left:
                raise SlotNotMoved(
                    f"{ends.source.address} cannot send to {ends.target.address}: {reply.text}; "
                    "mend that and run it again"
                )
            self._clock.sleep(_LOOK_S)

    def _setslot(self, state: str, node: Node | None = None) -> tuple[Arg, ...]:
        return ("CLUSTER", "SETSLOT", self.slot, state, *((node.id,) if node else ()))

    def _insist(self, node: Node, command: tuple[Arg, ...]) -> Any:
        """Send a command that must be carried out. Raises SlotNotMoved."""
        for tries_left in reversed(range(_TRIES)):
            (reply,) = self._servers.ask(node.address, command)
            if not isinstance(reply, Refusal):
                return reply
            if "NOREPLICAS" not in reply.text or not tries_left:
                raise SlotNotMoved(
                    f"{node.address} refuses {command[1]!s}: {reply.text}; run it again"
                )
            self._clock.sleep(_LOOK_S)
        raise AssertionError("the last try has returned or raised")


def _pairs(flat: Sequence[Any]) -> dict[str, str]:
    words = [word.decode() if isinstance(word, bytes) else str(word) for word in flat]
    return dict(zip(words[::2], words[1::2], strict=True))
