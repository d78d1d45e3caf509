"""What people look at: counts of queues, facts of partitions, who is there. For the command line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from redjob.calls.call import Arg
from redjob.calls.reads import Due, Query, pairs
from redjob.keys import PartitionKeys, nodes_key, workers_key


class QueueCounts(NamedTuple):
    """How many jobs of one queue one partition holds in each place; `next_due_ms` None when none."""

    scheduled: int
    ready: int
    held: int
    dispatched: int
    dead: int
    next_due_ms: int | None
    paused: bool


def queue_counts(part: PartitionKeys, queue: str) -> Query[QueueCounts]:
    """Count what one queue has in one partition."""
    q = part.queue(queue)
    commands: list[tuple[Arg, ...]] = [
        ("ZCARD", q.due),
        ("ZCARD", q.ready),
        ("ZCARD", q.held),
        ("XLEN", q.stream),
        ("ZCARD", q.dead),
        ("ZRANGE", q.due, 0, 0, "WITHSCORES"),
        ("HEXISTS", q.flow, "paused"),
    ]

    def read(raw: list[Any]) -> QueueCounts:
        first = pairs(raw[5])
        scheduled, ready, held, dispatched, dead = raw[:5]
        next_due_ms = first[0][1] if first else None
        return QueueCounts(scheduled, ready, held, dispatched, dead, next_due_ms, bool(raw[6]))

    return Query(part, commands, read)


def latest_dead(part: PartitionKeys, queue: str, limit: int) -> Query[list[Due]]:
    """Read the jobs of a queue that died last, latest first; the time is that of death, wall ms."""
    command: tuple[Arg, ...] = (
        "ZRANGE", part.queue(queue).dead, 0, limit - 1, "REV", "WITHSCORES",
    )  # fmt: skip
    return Query(part, [command], lambda raw: [Due(*pair) for pair in pairs(raw[0])])


class PartitionFacts(NamedTuple):
    """What meta says: state, the server that the owner has checked, and when a sweeper last came (ms).

    `lost` counts the jobs whose record is gone, `latest_lost` is one of them ("" for none).
    """

    state: str
    run_id: str
    sweeper_seen_ms: int | None
    grace_until_ms: int
    lost: int = 0
    latest_lost: str = ""


def partition_facts(part: PartitionKeys) -> Query[PartitionFacts | None]:
    """Read the facts of a partition; None for one that nobody has opened."""

    def read(raw: list[Any]) -> PartitionFacts | None:
        state, run_id, seen, grace = raw[0]
        if state is None:
            return None
        return PartitionFacts(
            state.decode(),
            (run_id or b"").decode(),
            int(seen) if seen else None,
            int(grace or 0),
            raw[1],
            raw[2][0].decode() if raw[2] else "",
        )

    commands: list[tuple[Arg, ...]] = [
        ("HMGET", part.meta, "state", "run_id", "seen_ms", "grace_until"),
        ("ZCARD", part.lost),
        ("ZRANGE", part.lost, 0, 0, "REV"),
    ]
    return Query(part, commands, read)


class Present(NamedTuple):
    """Who is there by one quorum key: scheduler nodes, and the node that owns each partition."""

    nodes: frozenset[str]
    owners: dict[int, str]


def present(namespace: str, quorum: int = 0) -> Query[Present]:
    """Read the live scheduler nodes and partition leases in a quorum key, by its server's clock."""

    def read(raw: list[Any]) -> Present:
        (seconds, micros), flat = raw
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        nodes: set[str] = set()
        owners: dict[int, str] = {}
        for field, value in zip(flat[::2], flat[1::2], strict=True):
            kind, _, name = field.decode().partition(":")
            first, _, until = value.decode().partition(" ")
            if int(until) <= now_ms:
                continue
            if kind == "node":
                nodes.add(name)
            else:
                owners[int(name)] = first
        return Present(frozenset(nodes), owners)

    return Query(None, [("TIME",), ("HGETALL", nodes_key(namespace, quorum))], read)


def agreed(found: Sequence[Present], count: int) -> Present:
    """Return what was found in some of `count` quorum keys: an owner is whom more than half name.

    A node counts wherever it is seen: whom one server does not hear may be heard by another.
    """
    votes = Counter(lease for one in found for lease in one.owners.items())
    owners = {index: name for (index, name), votes in votes.items() if votes > count // 2}
    return Present(frozenset[str]().union(*(one.nodes for one in found)), owners)


def workers_seen(namespace: str) -> Query[list[tuple[str, int]]]:
    """Read the names of workers and when each was last heard (server wall ms), latest first."""
    command: tuple[Arg, ...] = ("ZRANGE", workers_key(namespace), 0, -1, "REV", "WITHSCORES")
    return Query(None, [command], lambda raw: pairs(raw[0]))


def config_value(name: str) -> Query[str | None]:
    """Read one setting of the server; None where it has no such setting. Managed servers refuse."""

    def read(raw: list[Any]) -> str | None:
        return raw[0][1].decode() if raw[0] else None

    return Query(None, [("CONFIG", "GET", name)], read)
