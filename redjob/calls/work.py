"""Calls that workers make: take, begin, heartbeat, finish."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from redjob.calls.call import Arg, Call, Position, letters, position
from redjob.keys import PartitionKeys


class Start(NamedTuple):
    """A job that this worker has started: `attempts` is the field from before, b"" for none.

    `doc` is b"" in the answer to a repeated request: read the record then.
    """

    id: str
    attempts: bytes
    doc: bytes


class Taken(NamedTuple):
    """Reply of take: started jobs, entries that nothing named, and whether ready waits for room."""

    at: Position
    release: bool
    stale: list[str]
    starts: list[Start]


def take(
    part: PartitionKeys, queues: Sequence[str], worker: str, n: int, *, lease_ms: int, tag: str
) -> Call[Taken]:
    """Claim and start up to n (≤ 500) jobs, from the queues in their order."""
    keys = [
        part.meta, part.journal, part.dispatched, part.running, part.runs, part.attempts,
        part.taken(worker),
    ]  # fmt: skip
    for queue in queues:
        q = part.queue(queue)
        keys += (q.stream, q.flow, q.ready, q.bell)
    args: list[Arg] = [tag, "", "0", worker, n, lease_ms]
    return Call("take", part, keys, args, _read_taken, again_at=2, run_id_at=1)


def _read_taken(raw: list[Any]) -> Taken:
    flat = raw[6]
    starts = [Start(flat[i].decode(), flat[i + 1], flat[i + 2]) for i in range(0, len(flat), 3)]
    return Taken(position(raw), raw[4] == 1, [s.decode() for s in raw[5]], starts)


class Begun(NamedTuple):
    """Reply of begin: T started, = mine already (attempts of both in order), A not to be run."""

    at: Position
    codes: str
    attempts: list[int]


def begin(
    part: PartitionKeys,
    queue: str,
    worker: str,
    entries: Sequence[tuple[str, str]],
    *,
    lease_ms: int,
    tag: str,
) -> Call[Begun]:
    """Start jobs of one queue that a consumer read by itself, as (stream entry, job id)."""
    q = part.queue(queue)
    keys = [
        part.meta, part.journal, part.dispatched, part.running, part.runs, part.attempts,
        q.flow, q.stream,
    ]  # fmt: skip
    args: list[Arg] = [tag, "", worker, lease_ms, *(word for pair in entries for word in pair)]
    return Call("begin", part, keys, args, _read_begun, run_id_at=1)


def _read_begun(raw: list[Any]) -> Begun:
    return Begun(position(raw), letters(raw[4]), list(raw[5]))


class Beat(NamedTuple):
    """A running job whose lease is to be extended; progress and past are JSON or b""."""

    id: str
    queue: str
    attempt: int
    head: bytes
    progress: bytes = b""
    past: bytes = b""


class Codes(NamedTuple):
    """Reply with a letter per job, in the order of the call."""

    at: Position
    codes: str


def heartbeat(
    part: PartitionKeys, worker: str, beats: Sequence[Beat], *, lease_ms: int, tag: str
) -> Call[Codes]:
    """Extend leases. H held, Q held and cancel asked, A adopted after a rollback, L lost."""
    queues = queue_numbers(beat.queue for beat in beats)
    keys = [
        part.meta, part.journal, part.running, part.runs, part.attempts, part.cancels,
        part.progress, part.dispatched, part.finished,
    ]  # fmt: skip
    for queue in queues:
        q = part.queue(queue)
        keys += (q.due, q.ready)
    args: list[Arg] = [tag, worker, lease_ms, len(queues)]
    for beat in beats:
        keys.append(part.job_prefix + beat.id)
        args += (beat.id, queues[beat.queue], beat.attempt, beat.head, beat.progress, beat.past)
    return Call("heartbeat", part, keys, args, read_codes)


class End(NamedTuple):
    """How one attempt ended, as finish and reclaim take it.

    outcome C complete, R retry, Z snooze, B hand back, F dead, X expire. `number` is the result's
    TTL (C, F, X; 0 keeps none) or the delay (R, Z), in ms. `data` is the result JSON (C, X), the
    past's JSON (R, Z, B) or past, line feed, result (F). `stub` is b"" or codec.encode_stub.
    """

    id: str
    queue: str
    attempt: int
    outcome: str
    head: bytes
    number: int
    data: bytes
    stub: bytes = b""


def finish(part: PartitionKeys, worker: str, ends: Sequence[End], *, tag: str) -> Call[Codes]:
    """End attempts. M moved, = repeat, V accepted late, K cancelled instead, L lost, N nowhere, B damaged."""
    queues = queue_numbers(end.queue for end in ends)
    keys = [
        part.meta, part.journal, part.running, part.runs, part.attempts, part.finished,
        part.cancels, part.progress, part.dispatched, part.queues, part.done, part.waiters,
    ]  # fmt: skip
    for queue in queues:
        q = part.queue(queue)
        keys += (q.due, q.ready, q.dead, q.flow, q.stream, q.bell)
    job, result = part.job_prefix, part.result_prefix
    args: list[Arg] = [tag, worker, len(queues), *queues]
    for job_id, queue, attempt, outcome, head, number, data, stub in ends:
        keys.append(job + job_id)
        keys.append(result + job_id)
        args += (outcome, queues[queue], attempt, head, number, data, stub)
    return Call("finish", part, keys, args, read_codes)


def read_codes(raw: list[Any]) -> Codes:
    """Read a reply that is a letter per job."""
    return Codes(position(raw), letters(raw[4]))


def queue_numbers(queues: Iterable[str]) -> dict[str, int]:
    """Number the queues of a batch from 1, as scripts count them."""
    numbers: dict[str, int] = {}
    for queue in queues:
        if queue not in numbers:
            numbers[queue] = len(numbers) + 1
    return numbers
