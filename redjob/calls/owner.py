"""Calls that owners make: fence, fire, release, trim; and the lease at the quorum keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from redjob.calls.call import Arg, Call, Position, letters, position
from redjob.calls.work import Codes, read_codes
from redjob.keys import PartitionKeys, nodes_key

LAYOUT = "1"  # version of keys and formats, kept in meta


class Fence(NamedTuple):
    """A fencing token: a call with another one has no effect."""

    epoch: int
    nonce: str


class Installed(NamedTuple):
    """Reply of fence: `run_id_before` differs after a restart or failover, "" in a new partition."""

    at: Position
    incarnation: str
    run_id_before: str
    tag: str


def fence(
    part: PartitionKeys,
    token: Fence,
    *,
    incarnation: str,
    depth_limit: str,
    grace_ms: int,
    postgres: bool = False,
) -> Call[Installed]:
    """Install an owner; `incarnation` "" refuses to create a partition that is not there.

    With `postgres` the journal carries records from now on.
    """
    keys = [part.meta, part.journal, part.owner]
    args: list[Arg] = [token.epoch, token.nonce, "", incarnation, LAYOUT, depth_limit, grace_ms]
    args.append(int(postgres))
    return Call("fence", part, keys, args, _read_installed, run_id_at=2)


def _read_installed(raw: list[Any]) -> Installed:
    return Installed(position(raw), letters(raw[4]), letters(raw[5]), letters(raw[6]))


class Fired(NamedTuple):
    """Reply of fire. D stream, R ready, F full, E early, A absent, C changed, N no record, B damaged."""

    at: Position
    codes: str
    depth: int
    earliest_ms: int | None


class Parked(NamedTuple):
    """A due job for mode park: the score that was seen (ms), priority and tenant of its record."""

    id: str
    score_ms: int
    priority: int
    tenant: str


def fire(part: PartitionKeys, queue: str, ids: Sequence[str], *, tag: str) -> Call[Fired]:
    """Move due jobs (≤ 500) of one queue to its stream; those over the limit are answered F."""
    args: list[Arg] = [tag, "", queue, "fire"]
    return Call("fire", part, _fire_keys(part, queue, ids), args, _read_fired, run_id_at=1)


def park(part: PartitionKeys, queue: str, jobs: Sequence[Parked], *, tag: str) -> Call[Fired]:
    """Move due jobs to the stream as far as there is room by now, and the rest to ready."""
    args: list[Arg] = [tag, "", queue, "park"]
    for job in jobs:
        args += (job.score_ms, job.priority, job.tenant)
    keys = _fire_keys(part, queue, [job.id for job in jobs])
    return Call("fire", part, keys, args, _read_fired, run_id_at=1)


def _fire_keys(part: PartitionKeys, queue: str, ids: Sequence[str]) -> list[str]:
    q = part.queue(queue)
    prefix = part.job_prefix
    return [
        part.meta, part.journal, part.queues, q.due, q.ready, q.flow, q.stream, part.dispatched,
        q.bell, *[prefix + job_id for job_id in ids],
    ]  # fmt: skip


def _read_fired(raw: list[Any]) -> Fired:
    earliest = int(float(raw[6])) if raw[6] not in {b"", b"inf"} else None
    return Fired(position(raw), letters(raw[4]), raw[5], earliest)


def release(part: PartitionKeys, queue: str, ids: Sequence[str], *, tag: str) -> Call[Codes]:
    """Let jobs (≤ 500) of one queue out of ready while there is room. D stream, F full, A absent, N, B."""
    q = part.queue(queue)
    prefix = part.job_prefix
    keys = [
        part.meta, part.journal, q.ready, q.flow, q.stream, part.dispatched, q.bell,
        *[prefix + job_id for job_id in ids],
    ]  # fmt: skip
    return Call("release", part, keys, [tag, ""], read_codes, run_id_at=1)


class Committed(NamedTuple):
    """What Postgres has of a journal: up to `seq`; tombstones up to `settled_seq` are of no use any more.

    `acks` are the calls (≤ 500, ascending) that somebody waits for: seq and tag of each.
    """

    seq: int
    settled_seq: int
    acks: Sequence[tuple[int, str]] = ()


class Trimmed(NamedTuple):
    """Reply of trim: how many tombstones went."""

    at: Position
    dropped: int


def trim(
    part: PartitionKeys,
    token: Fence,
    *,
    entry: tuple[int, str],
    before: int,
    keep_ms: int,
    ids: Sequence[str] = (),
    committed: Committed | None = None,
) -> Call[Trimmed]:
    """Drop journal entries below `before` and the tombstones among `ids` older than keep_ms.

    `entry` is seq and tag of one that the caller read (0 and "": none): where another stands in its
    place, nothing happens. `committed` None is a namespace without Postgres.
    """
    keys = [part.meta, part.journal, part.owner, part.finished, part.acks]
    args: list[Arg] = [f"{token.epoch} {token.nonce}", *entry, before]
    if committed is None:
        args += ("", "", keep_ms, 0)
    else:
        args += (committed.seq, committed.settled_seq, keep_ms, len(committed.acks))
        for ack in committed.acks:
            args += ack
    args += ids
    return Call("trim", part, keys, args, _read_trimmed)


def _read_trimmed(raw: list[Any]) -> Trimmed:
    return Trimmed(position(raw), raw[4])


class Renewed(NamedTuple):
    """Reply of renew at one quorum key: live nodes with the time they joined (server wall ms)."""

    now_ms: int
    nodes: dict[str, int]
    granted: frozenset[int]
    others: dict[int, str]


def renew(
    namespace: str, quorum: int, node: str, *, ttl_ms: int, want: Sequence[int], drop: Sequence[int]
) -> Call[Renewed]:
    """Renew a node and its partitions at one quorum key; ttl_ms 0 leaves."""
    args: list[Arg] = [node, ttl_ms, " ".join(map(str, want)), " ".join(map(str, drop))]
    return Call("renew", None, [nodes_key(namespace, quorum)], args, _read_renewed)


def _read_renewed(raw: list[Any]) -> Renewed:
    members, others = raw[2], raw[4]
    nodes = {members[i].decode(): int(members[i + 1]) for i in range(0, len(members), 2)}
    held = {int(others[i]): others[i + 1].decode() for i in range(0, len(others), 2)}
    return Renewed(raw[1], nodes, frozenset(raw[3]), held)
