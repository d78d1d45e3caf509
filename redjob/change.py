"""Changes of a job that exists: cancel, reschedule, replay.

Pure steps: both clients drive them.  Each looks first, since the scripts want to know the queue and
what was seen: if the job has moved meanwhile it is looked at again, twice, and then told as it is.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from redjob.calls import jobs
from redjob.codec import decode_attempts, encode_past, stub_of
from redjob.errors import Conflict, JobNotFound, RedjobError, WrongState
from redjob.ids import new_token
from redjob.lookup import Found, damaged, find, score_ms
from redjob.model import JobState, Past
from redjob.validate import check_horizon

if TYPE_CHECKING:
    from redjob.calls.jobs import Cancelled, Moved
    from redjob.keys import Keyspace
    from redjob.steps import Steps

_TRIES = 3


class CancelResult(StrEnum):
    """What a cancel came to: it never starts again, or its running attempt was asked to stop."""

    CANCELLED = "CANCELLED"
    CANCEL_REQUESTED = "CANCEL_REQUESTED"


def cancel(
    keys: Keyspace, job_id: str, queue: str, now_ms: int, replicas: int = 0
) -> Steps[CancelResult]:
    """Cancel a job; one that is cancelled already is no error.

    Raises JobNotFound, WrongState, NotReplicated when fewer than `replicas` have it in time.
    """
    found = yield from find(keys, job_id, queue)
    record = found.record
    if record is None:
        return _already_cancelled(found)
    stub = stub_of(record, JobState.CANCELLED, now_ms, now_ms)
    call = jobs.cancel(found.part, record.queue, job_id, stub, new_token())
    call.replicas = replicas
    reply: Cancelled = yield call
    match reply.code:
        case "K":
            return CancelResult.CANCELLED
        case "Q":
            return CancelResult.CANCEL_REQUESTED
        case "F":
            raise WrongState(job_id, "cancel", JobState.FAILED)
        case _:  # it ended meanwhile: how is for another look to say
            return _already_cancelled((yield from find(keys, job_id, record.queue)))


def reschedule(
    keys: Keyspace, job_id: str, queue: str, run_at_ms: int, now_ms: int, replicas: int = 0
) -> Steps[None]:
    """Give a SCHEDULED job another time (wall ms).

    Raises JobNotFound, WrongState for another state, Conflict, InvalidArgument, and NotReplicated
    when fewer than `replicas` have it in time.
    """
    check_horizon("when", run_at_ms, now_ms)
    tag = new_token()  # one request, however often it is tried
    for _ in range(_TRIES):
        found = yield from find(keys, job_id, queue)
        if found.record is None or not found.places.due:
            raise _refused(found, "reschedule")
        queue = found.record.queue
        seen_ms = score_ms(found.places.due)
        call = jobs.reschedule(
            found.part, queue, job_id, seen_ms=seen_ms, run_at_ms=run_at_ms, tag=tag
        )
        call.replicas = replicas
        reply: Moved = yield call
        if reply.code in "S=":
            return
    raise Conflict(job_id)


def replay(keys: Keyspace, job_id: str, queue: str) -> Steps[None]:
    """Run a FAILED (dead) job again, at once; its failures and crashes count from 0.

    Raises JobNotFound, WrongState for another state, Conflict.
    """
    tag = new_token()
    for _ in range(_TRIES):
        found = yield from find(keys, job_id, queue)
        if found.record is None or not found.places.dead:
            raise _refused(found, "replay")
        queue = found.record.queue
        reply: Moved = yield jobs.replay(
            found.part,
            queue,
            job_id,
            died_ms=score_ms(found.places.dead),
            past=_cleared(found),
            tag=tag,
        )
        if reply.code in "S=":
            return
    raise Conflict(job_id)


def _already_cancelled(found: Found) -> CancelResult:
    if found.state is JobState.CANCELLED:
        return CancelResult.CANCELLED
    raise _refused(found, "cancel")


def _refused(found: Found, operation: str) -> RedjobError:
    state = found.state
    return JobNotFound(found.id) if state is None else WrongState(found.id, operation, state)


def _cleared(found: Found) -> bytes:
    """The past that a replayed job starts from: its last error and checkpoint, and no counts."""
    try:
        past = decode_attempts(found.places.attempts).past
    except (msgspec.DecodeError, ValueError) as error:
        raise damaged(found.id) from error
    return encode_past(Past(last=past.last, error=past.error, checkpoint=past.checkpoint))
