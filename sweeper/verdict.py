"""What becomes of a job whose worker was lost: a function of what Redis holds; under leases."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import msgspec

from redjob.calls.sweep import Expired
from redjob.calls.sweep_reads import RunFacts
from redjob.calls.work import End
from redjob.codec import (
    decode_attempts,
    decode_record,
    decode_run,
    encode_outcome,
    encode_past,
    head_of,
    ms_of,
    stub_of,
)
from redjob.model import ErrorInfo, JobState, Outcome, Past, Record
from redjob.retry import crash_delay_ms

WORKER_CRASHED = "WorkerCrashed"  # the error type of an attempt that ended without a word


class Verdict(NamedTuple):
    """What to ask of reclaim, and the words for the log line."""

    expired: Expired
    attempt: int
    worker: str
    crashes: int


def judge(job_id: str, doc: bytes, facts: RunFacts, now_ms: int, rng: Random) -> Verdict:
    """Decide over an attempt without a live lease: due again with crash backoff, or dead.

    Raises msgspec.DecodeError or ValueError when the record or its fields are damaged.
    """
    record = decode_record(doc)
    before = decode_attempts(facts.attempts)
    # Without its run the attempt has lost its number; it was the one after those that ended.
    attempt, worker = decode_run(facts.run) if facts.run else (before.attempt + 1, "unknown")
    error = ErrorInfo(
        type=WORKER_CRASHED,
        message=f"worker {worker} was lost in attempt {attempt}: its lease ran out",
        at=now_ms,
    )
    crashes = before.past.crashes + 1
    dead = crashes >= record.options.max_crashes
    past = msgspec.structs.replace(
        before.past, crashes=crashes, last="crashed", error=error, dead="crash" if dead else None
    )
    if dead:
        end = _dead(job_id, record, doc, past, attempt)
    else:
        number, data = crash_delay_ms(crashes, rng), encode_past(past)
        stub = stub_of(record, JobState.CANCELLED, now_ms, now_ms)  # for a cancel that was asked
        end = End(job_id, record.queue, attempt, "R", head_of(doc), number, data, stub)
    return Verdict(Expired(facts.run, end), attempt, worker, crashes)


def _dead(job_id: str, record: Record, doc: bytes, past: Past, attempt: int) -> End:
    ttl_ms = ms_of(record.options.result_ttl_s)
    ended_ms = past.error.at if past.error else 0
    outcome = Outcome(state=JobState.FAILED, ended=ended_ms, attempt=attempt, error=past.error)
    data = encode_past(past) + b"\n" + encode_outcome(outcome)
    return End(job_id, record.queue, attempt, "F", head_of(doc), ttl_ms, data)
