"""What the end of an attempt means for its job: pure functions from what happened to an `End`.

The worker decides here, the script checks the lease and moves.
"""

from __future__ import annotations

import asyncio
from random import Random

import msgspec

from redjob.calls.work import End
from redjob.codec import encode_outcome, encode_past, ms_of, stub_of
from redjob.errors import InvalidArgument, JobCancelled, RedjobError, Snooze
from redjob.model import ErrorInfo, JobState, Options, Outcome, Past
from redjob.retry import Retry
from redjob.worker.attempt import Attempt, Cause
from redjob.worker.describe import describe

RESULT_BYTES = 1 << 20  # what one call may carry
_ENDED_BY_TIMEOUT = (TimeoutError, JobCancelled, asyncio.CancelledError)

_encode = msgspec.json.Encoder().encode


class ResultInvalid(RedjobError):
    """Raised when what a task returned is not JSON, or too large to be kept."""

    code = "result_invalid"


def succeeded(attempt: Attempt, result: object, now_ms: int, rng: Random) -> End:
    """The task returned. A result that cannot be stored is a failure, told by its error."""
    try:
        data = _encode(result)
    except Exception as exc:  # noqa: BLE001 - TypeError, OverflowError, RecursionError: whatever it holds
        problem = ResultInvalid(f"the task returned what is not JSON: {exc}")
        return failed(attempt, describe(problem, now_ms), now_ms, rng)
    if len(data) > RESULT_BYTES:
        problem = ResultInvalid(
            f"the task returned {len(data)} bytes, more than {RESULT_BYTES}; "
            "store it elsewhere and return a reference"
        )
        return failed(attempt, describe(problem, now_ms), now_ms, rng)
    record = attempt.record
    outcome = Outcome(
        state=JobState.COMPLETED, ended=now_ms, attempt=attempt.attempt, result=msgspec.Raw(data)
    )
    return End(
        attempt.id,
        record.queue,
        attempt.attempt,
        "C",
        attempt.head,
        ms_of(record.options.result_ttl_s),
        encode_outcome(outcome),
        stub_of(attempt.record, JobState.COMPLETED, now_ms, now_ms),
    )


def raised(attempt: Attempt, exc: BaseException, now_ms: int, rng: Random) -> End | None:
    """The task raised: by why it was told to stop, if it was. None when there is nothing to report."""
    cause = attempt.cause
    if cause is Cause.LOST:
        return None  # whoever owns the job now decides
    if isinstance(exc, Snooze):
        return _snoozed(attempt, exc.delay_s, now_ms)
    if cause is Cause.HANDED_BACK:
        return handed_back(attempt, now_ms)  # whatever an interruption leads to is not a failure
    error = describe(exc, now_ms)
    if cause is Cause.TIMEOUT and isinstance(exc, _ENDED_BY_TIMEOUT):
        # told as what it is, with the place where it was then
        limit = timed_out(attempt, now_ms)
        error = msgspec.structs.replace(error, type=limit.type, message=limit.message)
    return failed(attempt, error, now_ms, rng)


def timed_out(attempt: Attempt, now_ms: int) -> ErrorInfo:
    """The error of an attempt that ran out of time, as of now_ms (wall ms)."""
    text = f"ran longer than timeout_s={attempt.record.options.timeout_s:g}"
    return ErrorInfo(type="TimeoutError", message=text, at=now_ms)


def failed(attempt: Attempt, error: ErrorInfo, now_ms: int, rng: Random) -> End:
    """One more failure: due again after the task's delay, or dead when the attempts are used up.

    With a cancel asked for it is always a retry: finish ends that as CANCELLED, or, if a rollback
    has taken the request back, runs the job again.
    """
    options, past = attempt.record.options, attempt.past
    failures = past.failures + 1
    if failures >= options.max_attempts and attempt.cause is not Cause.CANCELLED:
        return _dead(attempt, "failure", failures, error, now_ms)
    after = _past(attempt, "failed", failures, error)
    return _go_on(attempt, "R", retry_of(options).delay_ms(failures, rng), after, now_ms)


def rejected(attempt: Attempt, error: ErrorInfo, now_ms: int) -> End:
    """The job cannot be run at all (unknown task, undecodable): dead at once, its record stays."""
    return _dead(attempt, "rejected", attempt.past.failures, error, now_ms)


def expired(attempt: Attempt, now_ms: int) -> End:
    """The job came too late to be begun."""
    outcome = Outcome(state=JobState.EXPIRED, ended=now_ms, attempt=attempt.attempt)
    return End(
        attempt.id,
        attempt.record.queue,
        attempt.attempt,
        "X",
        attempt.head,
        ms_of(attempt.record.options.result_ttl_s),
        encode_outcome(outcome),
        stub_of(attempt.record, JobState.EXPIRED, now_ms, now_ms),
    )


def handed_back(attempt: Attempt, now_ms: int) -> End:
    """The worker gives the job back: to the stream at once, without a failure or a crash."""
    return _go_on(attempt, "B", 0, _past(attempt, "handed_back"), now_ms)


def retry_of(options: Options) -> Retry:
    """The delays that a record asks for; the usual ones where it asks for nonsense."""
    try:
        return Retry(
            max_attempts=options.max_attempts,
            base_s=options.base_s,
            factor=options.factor,
            cap_s=options.cap_s,
            jitter=options.jitter,
        )
    except InvalidArgument:
        return Retry()


def _snoozed(attempt: Attempt, delay_s: float, now_ms: int) -> End:
    return _go_on(attempt, "Z", ms_of(delay_s), _past(attempt, "snoozed"), now_ms)


def _go_on(attempt: Attempt, outcome: str, delay_ms: int, past: Past, now_ms: int) -> End:
    # The script ends all of these as CANCELLED when that was asked for: hence the stub.
    return End(
        attempt.id,
        attempt.record.queue,
        attempt.attempt,
        outcome,
        attempt.head,
        delay_ms,
        _past_json(past),
        stub_of(attempt.record, JobState.CANCELLED, now_ms, now_ms),
    )


def _dead(attempt: Attempt, why: str, failures: int, error: ErrorInfo, now_ms: int) -> End:
    past = msgspec.structs.replace(_past(attempt, "failed", failures, error), dead=why)
    outcome = Outcome(state=JobState.FAILED, ended=now_ms, attempt=attempt.attempt, error=error)
    return End(
        attempt.id,
        attempt.record.queue,
        attempt.attempt,
        "F",
        attempt.head,
        ms_of(attempt.record.options.result_ttl_s),
        _past_json(past) + b"\n" + encode_outcome(outcome),
    )


def _past(
    attempt: Attempt, last: str, failures: int | None = None, error: ErrorInfo | None = None
) -> Past:
    past = attempt.past
    return Past(
        failures=past.failures if failures is None else failures,
        crashes=past.crashes,
        last=last,
        error=error or past.error,
        checkpoint=msgspec.Raw(attempt.checkpoint) if attempt.checkpoint else past.checkpoint,
    )


def checkpointed(attempt: Attempt) -> bytes:
    """The past to store while the attempt runs, with the checkpoint that it has given."""
    past = msgspec.structs.replace(attempt.past, checkpoint=msgspec.Raw(attempt.checkpoint))
    return _past_json(past)


def _past_json(past: Past) -> bytes:
    data = encode_past(past)
    # A line feed (from a checkpoint that was given as raw JSON) would end a line of the journal.
    return msgspec.json.format(data, indent=-1) if b"\n" in data else data
