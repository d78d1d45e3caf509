"""Calls that clients make: enqueue, cancel, reschedule, replay, locate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from redjob.calls.call import Arg, Call, Position, letters, position
from redjob.keys import PartitionKeys

BATCH = 500  # jobs a call, the bound of every script
BATCH_BYTES = 1 << 20


class NewJob(NamedTuple):
    """A job to be enqueued: id, due time in wall ms (0 = now) and its encoded record."""

    id: str
    run_at_ms: int
    doc: bytes


class Enqueued(NamedTuple):
    """Reply of enqueue: a letter per job, and what was found for those that existed (E).

    S due, D in the stream, R ready, E exists, T finished already, B not accepted (damaged key).
    """

    at: Position
    codes: str
    found: dict[int, bytes]


def enqueue(
    part: PartitionKeys, queue: str, tenant: str, priority: int, jobs: Sequence[NewJob], tag: str
) -> Call[Enqueued]:
    """Accept jobs of one partition, queue, tenant and priority; ids differ, at most BATCH."""
    q = part.queue(queue)
    keys = [
        part.meta, part.journal, part.finished, part.dispatched, part.queues,
        q.due, q.ready, q.flow, q.stream, q.bell,
    ]  # fmt: skip
    prefix = part.job_prefix
    args: list[Arg] = [tag, "0", queue, tenant, priority]
    for job_id, run_at_ms, doc in jobs:
        keys.append(prefix + job_id)
        args.append(run_at_ms)
        args.append(doc)
    return Call("enqueue", part, keys, args, _read_enqueued, again_at=1)


def _read_enqueued(raw: list[Any]) -> Enqueued:
    known = raw[5]
    found = {known[i] - 1: known[i + 1] for i in range(0, len(known), 2)} if known else {}
    return Enqueued(position(raw), letters(raw[4]), found)


class Cancelled(NamedTuple):
    """Reply of cancel: K cancelled, Q asked to stop, F dead, E ended (detail), A absent."""

    at: Position
    code: str
    detail: bytes


def cancel(part: PartitionKeys, queue: str, job_id: str, stub: bytes, tag: str) -> Call[Cancelled]:
    """End a job that has not begun, or ask its running attempt to stop."""
    q = part.queue(queue)
    keys = [
        part.meta, part.journal, part.finished, part.dispatched, part.runs, part.attempts,
        part.cancels, q.due, q.ready, q.held, q.dead, part.done, part.waiters, part.job(job_id),
    ]  # fmt: skip
    return Call("cancel", part, keys, [tag, stub], _read_cancelled)


def _read_cancelled(raw: list[Any]) -> Cancelled:
    return Cancelled(position(raw), letters(raw[4]), raw[5])


class Moved(NamedTuple):
    """Reply of reschedule and replay: S moved, = repeat, C changed meanwhile, A not there, N no record."""

    at: Position
    code: str


def reschedule(
    part: PartitionKeys, queue: str, job_id: str, *, seen_ms: int, run_at_ms: int, tag: str
) -> Call[Moved]:
    """Give a job in due another time, if it still has the one that was seen (wall ms)."""
    q = part.queue(queue)
    keys = [part.meta, part.journal, part.queues, q.due, part.attempts, part.job(job_id)]
    return Call("reschedule", part, keys, [tag, queue, seen_ms, run_at_ms], _read_moved)


def replay(
    part: PartitionKeys, queue: str, job_id: str, *, died_ms: int, past: bytes, tag: str
) -> Call[Moved]:
    """Send a dead job back to due, if it still has the time of death that was seen (wall ms)."""
    q = part.queue(queue)
    keys = [
        part.meta, part.journal, part.queues, q.due, q.dead, part.attempts,
        part.job(job_id), part.result(job_id),
    ]  # fmt: skip
    return Call("replay", part, keys, [tag, queue, died_ms, past], _read_moved)


def _read_moved(raw: list[Any]) -> Moved:
    return Moved(position(raw), letters(raw[4]))


class Located(NamedTuple):
    """Everything that the places hold of one job; b"" where there is nothing."""

    at: Position
    doc: bytes
    result: bytes
    due: bytes
    ready: bytes
    held: bytes
    dead: bytes
    entry: bytes
    run: bytes
    lease: bytes
    tombstone: bytes
    attempts: bytes
    cancel: bytes
    progress: bytes
    workflow: bytes


def locate(part: PartitionKeys, queue: str, job_id: str) -> Call[Located]:
    """Read every place that can hold a job; `queue` may be "" when the record is gone."""
    q = part.queue(queue)
    keys = [
        part.meta, part.finished, part.dispatched, part.running, part.runs, part.attempts,
        part.cancels, part.progress, part.waiting, q.due, q.ready, q.held, q.dead,
        part.job(job_id), part.result(job_id),
    ]  # fmt: skip
    return Call("locate", part, keys, [], _read_located)


def _read_located(raw: list[Any]) -> Located:
    return Located(position(raw), *raw[4:18])
