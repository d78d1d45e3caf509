"""What stays of a finished keyed job: the same by whoever ends it, and nothing that Redis refuses."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from redjob.calls.sweep_reads import RunFacts
from redjob.codec import encode_record, head_of, ms_of, stub_of
from redjob.keys import Keyspace
from redjob.model import ErrorInfo, JobState, Options, Past, Record
from redjob.sweeper.verdict import judge
from redjob.worker import outcome
from redjob.worker.attempt import Attempt

NOW_MS = 1_790_000_000_000
ID = "01a229c5-9f09-7f65-aab5-9ad928500005"
PART = Keyspace("t", 1).parts[0]
TEN_YEARS_MS = 10 * 366 * 86_400_000


def record_of(options: Options, body_hash: str | None = "h") -> Record:
    return Record(
        home="2026-09-25",
        created=NOW_MS,
        task="t",
        queue="q",
        payload=msgspec.Raw(b"{}"),
        options=options,
        body_hash=body_hash,
    )


def attempt_of(record: Record) -> Attempt:
    return Attempt(ID, 1, PART, head_of(encode_record(record)), record, Past())


@pytest.mark.parametrize("body_hash", ["h", None])
@pytest.mark.parametrize("window_s", [60.0, 0.0, 1e300])
def test_a_worker_leaves_the_stub_that_everybody_leaves(
    body_hash: str | None, window_s: float
) -> None:
    record = record_of(Options(key="k", key_window_s=window_s), body_hash)
    attempt = attempt_of(record)
    error = ErrorInfo(type="E", message="", at=NOW_MS)
    for end, state in (
        (outcome.succeeded(attempt, 1, NOW_MS, Random(1)), JobState.COMPLETED),
        (outcome.expired(attempt, NOW_MS), JobState.EXPIRED),
        (outcome.failed(attempt, error, NOW_MS, Random(1)), JobState.CANCELLED),
    ):
        assert end.stub == stub_of(record, state, NOW_MS, NOW_MS)


@pytest.mark.parametrize(
    ("seconds", "ms"),
    [(1.5, 1500), (0, 0), (-1, 0), (float("nan"), 0), (1e300, TEN_YEARS_MS)],
)
def test_seconds_of_a_record_become_ms_that_redis_takes(seconds: float, ms: int) -> None:
    assert ms_of(seconds) == ms


def test_no_stub_outlives_the_horizon_of_times() -> None:
    stub = stub_of(record_of(Options(key="k", key_window_s=1e300)), JobState.FAILED, NOW_MS, NOW_MS)
    assert int(stub.split(b" ", 1)[0]) == TEN_YEARS_MS


def test_a_crash_verdict_is_kept_for_a_time_that_redis_takes() -> None:
    record = record_of(Options(max_crashes=1, result_ttl_s=1e300))
    facts = RunFacts(b"1 w", b"", 1)
    verdict = judge(ID, encode_record(record), facts, NOW_MS, Random(1))
    assert (verdict.expired.end.outcome, verdict.expired.end.number) == ("F", TEN_YEARS_MS)
