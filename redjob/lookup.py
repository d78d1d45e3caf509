"""Where a job is and what is known of it: the places of one job, read in one step, as a JobInfo.

Pure steps: both clients drive them.  A job's state is the place that holds its id; of a job whose
record is gone its tombstone, its result or its stub tells how it ended, whichever is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from redjob.calls.jobs import Located, locate
from redjob.codec import (
    Tombstone,
    decode_attempts,
    decode_outcome,
    decode_record,
    decode_run,
    decode_stub,
    decode_tombstone,
    is_stub,
)
from redjob.errors import JobNotFound, ScriptFailed
from redjob.ids import slot_of
from redjob.model import JobInfo, JobState, Outcome, Record, Stub

if TYPE_CHECKING:
    from redjob.keys import Keyspace, PartitionKeys
    from redjob.steps import Steps

_LOOKS = 3  # a keyed job may end and start anew in another queue while it is looked at
_json = msgspec.json.Decoder().decode


class Found(NamedTuple):
    """A job in its places; `record` is None when the job has ended and left."""

    id: str
    part: PartitionKeys
    places: Located
    record: Record | None

    @property
    def state(self) -> JobState | None:
        """Its state, None when nothing is left of it."""
        return _place(self.places)[0] if self.record else _end(self).state


def find(keys: Keyspace, job_id: str, queue: str) -> Steps[Found]:
    """Look into every place of a job; `queue` "" is found out. Raises InvalidArgument, ScriptFailed."""
    part = keys.of_slot(slot_of(job_id))
    looks = 0
    while True:
        places: Located = yield locate(part, queue, job_id)
        record = _record(job_id, places.doc)
        looks += 1
        if record is None or record.queue == queue or looks == _LOOKS:
            return Found(job_id, part, places, record)
        queue = record.queue


def info(keys: Keyspace, job_id: str, queue: str) -> Steps[JobInfo]:
    """Tell all that is known of a job. Raises JobNotFound, InvalidArgument, ScriptFailed."""
    found = yield from find(keys, job_id, queue)
    return _alive(found, found.record) if found.record else _ended(found)


def damaged(job_id: str) -> ScriptFailed:
    """The error for values that redjob cannot have written."""
    return ScriptFailed("locate", f"what is stored of job {job_id} is damaged")


def _record(job_id: str, doc: bytes) -> Record | None:
    if not doc or is_stub(doc):
        return None
    try:
        return decode_record(doc)
    except msgspec.DecodeError as error:
        raise damaged(job_id) from error


def _place(places: Located) -> tuple[JobState, str | None]:
    """The state of a job that has a record, and what holds it back."""
    if places.run:
        return JobState.RUNNING, None
    if places.due:
        return JobState.SCHEDULED, None
    if places.entry:
        return JobState.DISPATCHED, None
    if places.ready:
        return JobState.DISPATCHED, "depth"
    if places.held:
        return JobState.DISPATCHED, "limit"
    if places.dead:
        return JobState.FAILED, None
    if places.workflow:
        return JobState.WAITING, None
    return JobState.DISPATCHED, "lost"  # in no place: the sweeper gives it a new entry


class _End(NamedTuple):
    """How a job that left has ended: whatever is left of it, the surest first."""

    state: JobState | None
    tombstone: Tombstone | None
    outcome: Outcome | None
    stub: Stub | None


def _end(found: Found) -> _End:
    places = found.places
    try:
        tombstone = decode_tombstone(places.tombstone) if places.tombstone else None
        outcome = decode_outcome(places.result) if places.result else None
        stub = decode_stub(places.doc) if places.doc else None
    except (msgspec.DecodeError, ValueError, KeyError) as error:
        raise damaged(found.id) from error
    told = tombstone or stub or outcome
    state = told.state if told else None
    # A result outlives what it belongs to: one with another end is of an earlier life of the key.
    if outcome and outcome.state != state:
        outcome = None
    return _End(state, tombstone, outcome, stub)


def _ended(found: Found) -> JobInfo:
    end = _end(found)
    if end.state is None:
        raise JobNotFound(found.id)
    outcome, stub = end.outcome, end.stub
    ended_ms = end.tombstone.ended_ms if end.tombstone else None
    return JobInfo(
        id=found.id,
        state=end.state,
        created_ms=stub.created if stub else None,
        attempt=outcome.attempt if outcome else (end.tombstone.attempt if end.tombstone else 0),
        ended_ms=ended_ms or (outcome.ended if outcome else stub.ended if stub else None),
        error=outcome.error if outcome else None,
        result=_json(outcome.result) if outcome else None,
    )


def _alive(found: Found, record: Record) -> JobInfo:
    places = found.places
    state, held_by = _place(places)
    try:
        past = decode_attempts(places.attempts)
        run = decode_run(places.run) if places.run else None
    except (msgspec.DecodeError, ValueError) as error:
        raise damaged(found.id) from error
    return JobInfo(
        id=found.id,
        state=state,
        task=record.task,
        queue=record.queue,
        tenant=record.tenant,
        priority=record.priority,
        created_ms=record.created,
        run_at_ms=score_ms(places.due) if places.due else record.due_ms,
        attempt=run.attempt if run else past.attempt,
        failures=past.past.failures,
        crashes=past.past.crashes,
        worker=run.worker if run else None,
        lease_until_ms=score_ms(places.lease) if places.lease else None,
        held_by=held_by,
        cancel_requested_ms=int(places.cancel) if places.cancel else None,
        ended_ms=score_ms(places.dead) if state is JobState.FAILED else None,
        error=past.past.error,
        payload=_json(record.payload),
        progress=_optional(places.progress),
    )


def score_ms(score: bytes) -> int:
    """Read a ZSET score that is a time in ms."""
    return int(float(score))


def _optional(doc: bytes) -> object:
    return _json(doc) if doc else None
