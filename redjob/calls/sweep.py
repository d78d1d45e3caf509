"""Calls that the sweeper makes: reclaim, requeue, lose, purge, recount, forget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from redjob.calls.call import Arg, Call, Position, position
from redjob.calls.work import Codes, End, queue_numbers, read_codes
from redjob.keys import PartitionKeys


class Expired(NamedTuple):
    """An attempt whose lease ran out: `run` is the `<attempt> <worker>` that was read, b"" for none.

    The end's outcome is R (due again after `number` ms) or F (dead).
    """

    run: bytes
    end: End


def reclaim(
    part: PartitionKeys, attempts: Sequence[Expired], *, grace_ms: int, tag: str
) -> Call[Codes]:
    """End attempts whose lease ran out. M moved, K cancelled instead, L lease lives, N no record, B."""
    queues = queue_numbers(item.end.queue for item in attempts)
    keys = [
        part.meta, part.journal, part.running, part.runs, part.attempts, part.finished,
        part.cancels, part.progress, part.queues, part.done, part.waiters,
    ]  # fmt: skip
    for queue in queues:
        q = part.queue(queue)
        keys += (q.due, q.dead)
    args: list[Arg] = [tag, "", grace_ms, len(queues), *queues]
    for run, end in attempts:
        keys += (part.job(end.id), part.result(end.id))
        args += (end.outcome, queues[end.queue], run, end.head, end.number, end.data, end.stub)
    return Call("reclaim", part, keys, args, read_codes, run_id_at=1)


def requeue(
    part: PartitionKeys,
    queue: str,
    jobs: Sequence[tuple[str, str]],
    *,
    grace_ms: int | None,
    tag: str,
) -> Call[Codes]:
    """Give jobs of one queue, as (id, entry never begun or ""), a new entry. D new, A as it should be, N, B.

    grace_ms None is a worker's call: only those of a sweeper say that one is there.
    """
    q = part.queue(queue)
    keys = [
        part.meta, part.journal, part.dispatched, part.runs, q.due, q.ready, q.held, q.dead,
        q.flow, q.stream, q.bell, part.waiting, part.running,
        *[part.job(job_id) for job_id, _ in jobs],
    ]  # fmt: skip
    lease_ms: Arg = "" if grace_ms is None else grace_ms
    args: list[Arg] = [tag, "", lease_ms, *[entry for _, entry in jobs]]
    return Call("requeue", part, keys, args, read_codes, run_id_at=1)


def lose(
    part: PartitionKeys, queues: Sequence[str], ids: Sequence[str], *, tag: str
) -> Call[Codes]:
    """Deal with jobs of any of these queues whose record is gone. L lost, D restored, H a lease lives, A."""
    keys = [
        part.meta, part.journal, part.dispatched, part.running, part.runs, part.attempts,
        part.cancels, part.progress, part.lost,
    ]  # fmt: skip
    for queue in queues:
        q = part.queue(queue)
        keys += (q.due, q.ready, q.held, q.stream)
    keys += map(part.job, ids)
    return Call("lose", part, keys, [tag, "", len(queues)], read_codes, run_id_at=1)


def purge(
    part: PartitionKeys, queue: str, jobs: Sequence[tuple[str, bytes]], *, keep_ms: int, tag: str
) -> Call[Codes]:
    """Drop dead jobs of one queue, as (id, stub or b""), that died at least keep_ms ago.

    M dropped, = repeat, Y died too lately, A not dead.
    """
    keys = [
        part.meta, part.journal, part.queue(queue).dead, part.attempts, part.finished,
    ]  # fmt: skip
    args: list[Arg] = [tag, keep_ms]
    for job_id, stub in jobs:
        keys += (part.job(job_id), part.result(job_id))
        args.append(stub)
    return Call("purge", part, keys, args, read_codes)


class Recounted(NamedTuple):
    """Reply of recount: the depth that was stored, the depth that is, and how many entries went."""

    at: Position
    before: int
    depth: int
    settled: int


def recount(part: PartitionKeys, queue: str, entries: Sequence[str]) -> Call[Recounted]:
    """Set a queue's depth to what its stream holds, without pending entries that no job names."""
    q = part.queue(queue)
    keys = [part.meta, part.dispatched, q.flow, q.stream]
    return Call("recount", part, keys, list(entries), _read_recounted)


def _read_recounted(raw: list[Any]) -> Recounted:
    return Recounted(position(raw), raw[4], raw[5], raw[6])


class Forgotten(NamedTuple):
    """Reply of forget: how many tenants went."""

    at: Position
    dropped: int


def forget(part: PartitionKeys, queue: str, fields: Sequence[str]) -> Call[Forgotten]:
    """Drop the last virtual times (fields `t:<tenant>` of flow, ≤ 500) that virtual time has reached."""
    keys = [part.meta, part.queue(queue).flow]
    return Call("forget", part, keys, list(fields), _read_forgotten)


def _read_forgotten(raw: list[Any]) -> Forgotten:
    return Forgotten(position(raw), raw[4])
