"""From a caller's words to records and calls: options, ids, times, and what replies mean."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Unpack

import pytest

from redjob.codec import HEAD, decode_record, encode_record, head_of
from redjob.errors import (
    IdempotencyConflict,
    InvalidArgument,
    ScriptFailed,
    StoreUnavailable,
)
from redjob.ids import keyed_job_id
from redjob.keys import Keyspace
from redjob.model import JobState, Record, Stub
from redjob.retry import Retry
from redjob.submit import (
    Draft,
    EnqueueOptions,
    JobSpec,
    Submitter,
    draft_of,
    plan_of,
    record_of,
    was_created,
    with_job,
)
from redjob.testing import ManualClock
from redjob.validate import LIMITS

NOW_MS = 1_790_000_000_000
DAY_MS = 86_400_000
KEYS = Keyspace("ns", 16)


def submitter() -> Submitter:
    return Submitter("ns", ManualClock())


def stored(draft: Draft) -> Record:
    return decode_record(record_of(draft, NOW_MS)[1])


# plans


def test_a_plan_is_made_once_for_the_same_words() -> None:
    assert plan_of("t", queue="q", retry=Retry(max_attempts=3)) is plan_of(
        "t", queue="q", retry=Retry(max_attempts=3)
    )
    assert plan_of("t", queue="q") is not plan_of("t", queue="q2")


def test_options_are_stored_as_the_record_knows_them() -> None:
    plan = plan_of(
        "t",
        priority="high",
        tenant="acme",
        retry=Retry(max_attempts=7, base_s=2, factor=3, cap_s=60, jitter="none"),
        timeout_s=30,
        max_crashes=2,
        result_ttl_s=0,
        key_window_s=60,
    )
    options = plan.options
    assert (plan.queue, plan.tenant, plan.priority) == ("default", "acme", 2)
    assert (options.max_attempts, options.base_s, options.factor, options.cap_s) == (7, 2, 3, 60)
    assert (options.jitter, options.timeout_s, options.max_crashes) == ("none", 30, 2)
    assert (options.result_ttl_s, options.key_window_s) == (0, 60)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"queue": "a b"}, "queue"),
        ({"queue": "{x}"}, "queue"),
        ({"queue": ""}, "queue"),
        ({"queue": "x" * 129}, "queue"),
        ({"queue": "q\r\n"}, "queue"),
        ({"queue": "q\n"}, "queue"),
        ({"tenant": "ü"}, "tenant"),
        ({"tenant": "a\0"}, "tenant"),
        ({"tenant": "\u202eacme"}, "tenant"),
        ({"tenant": None}, "tenant"),
        ({"tenant": ["a"]}, "tenant"),
        ({"priority": 10}, "priority"),
        ({"priority": True}, "priority"),
        ({"priority": [1]}, "priority"),
        ({"retry": 3}, "retry"),
        ({"retry": {"max_attempts": 3}}, "retry"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"timeout_s": float("nan")}, "timeout_s"),
        ({"max_crashes": 0}, "max_crashes"),
        ({"result_ttl_s": -1}, "result_ttl_s"),
        ({"key_window_s": float("inf")}, "key_window_s"),
        ({"expires_in": -1}, "expires_in"),
        ({"expires_in": timedelta(days=100_000)}, "expires_in"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(options: Any, field: str) -> None:
    plan_of("t", priority=1)  # what has passed once must not let its like pass
    with pytest.raises(InvalidArgument) as caught:
        plan_of("t", **options)
    assert caught.value.field == field
    assert caught.value.remedy


@pytest.mark.parametrize("task", ["", "a b", "{t}", "t\0", "t\u202e", "x" * 129, None, 7])
def test_a_bad_task_name_is_refused(task: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^task: is .*; use 1 to 128"):
        draft_of(task, {}, {})


def test_an_option_that_does_not_exist_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="colour"):
        plan_of("t", colour=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="colour"):
        JobSpec("t", colour=1)  # type: ignore[call-arg]


# drafts and records


def test_a_plain_job_stores_nothing_that_is_a_default() -> None:
    run_at_ms, doc = record_of(draft_of("t", {"a": 1}, {"queue": "q"}), NOW_MS)
    assert run_at_ms == 0
    assert doc == (
        b'{"home":"2026-09-21","created":1790000000000,"task":"t","queue":"q","payload":{"a":1}}'
    )


def test_a_job_for_later_stores_its_time_and_the_day_of_it() -> None:
    draft = JobSpec("t", run_at=datetime(2027, 3, 1, tzinfo=UTC)).draft()
    run_at_ms, doc = record_of(draft, NOW_MS)
    record = decode_record(doc)
    assert run_at_ms == record.run_at == 1_803_859_200_000
    assert record.home == "2027-03-01"
    assert len(head_of(doc)) == HEAD
    assert head_of(doc).endswith(b"1790000000000")


def test_a_delay_counts_from_the_servers_clock() -> None:
    run_at_ms, _ = record_of(JobSpec("t", run_in=timedelta(days=3)).draft(), NOW_MS)
    assert run_at_ms == NOW_MS + 3 * DAY_MS
    assert record_of(JobSpec("t", run_in=0).draft(), NOW_MS)[0] == 0


def test_a_past_time_is_kept() -> None:
    assert record_of(JobSpec("t", run_at=datetime(2020, 1, 1, tzinfo=UTC)).draft(), NOW_MS)[0] == (
        1_577_836_800_000
    )


def test_beyond_the_horizon_nothing_is_stored() -> None:
    far = datetime.fromtimestamp(NOW_MS / 1000 + LIMITS.horizon_s + 60, UTC)
    with pytest.raises(InvalidArgument, match=r"^run_at: lies more than 10 years ahead"):
        record_of(JobSpec("t", run_at=far).draft(), NOW_MS)
    with pytest.raises(InvalidArgument, match=r"^run_at: lies more than 10 years ahead"):
        record_of(JobSpec("t", run_at=datetime.max.replace(tzinfo=UTC)).draft(), NOW_MS)
    with pytest.raises(InvalidArgument, match=r"^expires_at: lies more than 10 years ahead"):
        record_of(draft_of("t", {}, {"expires_at": far}), NOW_MS)


def test_a_job_is_asked_for_one_time_only() -> None:
    when = datetime(2027, 3, 1, tzinfo=UTC)
    with pytest.raises(InvalidArgument, match="run_in: is given beside run_at; pass one of them"):
        JobSpec("t", run_at=when, run_in=5).draft()


def test_expires_in_counts_from_the_due_time() -> None:
    draft = draft_of("t", {}, {"expires_in": 60})
    assert stored(draft).options.expires_at == NOW_MS + 60_000
    later = draft._replace(delay_ms=1000)
    assert stored(later).options.expires_at == NOW_MS + 61_000


def test_expires_at_wins_and_must_be_after_the_due_time() -> None:
    end = datetime.fromtimestamp(NOW_MS / 1000 + 60, UTC)
    draft = draft_of("t", {}, {"expires_at": end, "expires_in": 5})
    assert stored(draft).options.expires_at == NOW_MS + 60_000
    with pytest.raises(InvalidArgument, match=r"^expires_at: is not after the due time"):
        record_of(draft._replace(delay_ms=60_000), NOW_MS)
    with pytest.raises(InvalidArgument, match=r"^expires_at: is a datetime without a time zone"):
        draft_of("t", {}, {"expires_at": datetime(2030, 1, 1)})  # noqa: DTZ001


# ids and replies


def test_a_keyed_job_has_the_id_of_its_key_and_stores_both() -> None:
    draft = draft_of("t", {"a": 1}, {"idempotency_key": "k", "tenant": "acme"})
    job, call = submitter().call(KEYS, draft, NOW_MS)
    record = decode_record(job.doc)
    assert job.id == keyed_job_id("ns", "acme", "k")
    assert call.part is KEYS.of_job(job.id)
    assert record.options.key == "k"
    assert record.body_hash is not None
    assert record.tenant == "acme"


def test_a_job_without_a_key_is_new_each_time_and_has_no_hash() -> None:
    draft = draft_of("t", {}, {})
    one, _ = submitter().call(KEYS, draft, NOW_MS)
    other, _ = submitter().call(KEYS, draft, NOW_MS)
    assert one.id != other.id
    assert decode_record(one.doc).body_hash is None


def keyed(payload: dict[str, Any], **options: Unpack[EnqueueOptions]) -> Draft:
    options["idempotency_key"] = "k"
    return draft_of("t", payload, options)


def created(draft: Draft, found: Draft | bytes | None, *, again: bool = False) -> bool:
    job, _ = submitter().call(KEYS, draft, NOW_MS)
    doc = record_of(found, NOW_MS - 5)[1] if isinstance(found, Draft) else found
    return was_created(draft, job, "E" if doc is not None else "D", doc, again=again)


@pytest.mark.parametrize("code", ["S", "D", "R", "T"])
def test_what_the_script_has_taken_was_created(code: str) -> None:
    draft = draft_of("t", {}, {})
    job, _ = submitter().call(KEYS, draft, NOW_MS)
    assert was_created(draft, job, code, None, again=False)


def test_the_same_key_and_body_is_the_older_job() -> None:
    assert not created(keyed({"a": 1, "b": 2}), keyed({"b": 2, "a": 1}))


def test_other_options_do_not_make_another_body() -> None:
    assert not created(keyed({}, priority="high", timeout_s=5), keyed({}, result_ttl_s=9))


@pytest.mark.parametrize(
    "other",
    [keyed({"a": 2}), keyed({"a": 1}, queue="q2"), keyed({"a": 1})._replace(plan=plan_of("t2"))],
)
def test_the_same_key_with_another_body_is_a_conflict(other: Draft) -> None:
    with pytest.raises(IdempotencyConflict) as caught:
        created(keyed({"a": 1}), other)
    assert caught.value.job_id == keyed_job_id("ns", "default", "k")
    assert caught.value.key == "k"


def test_a_stub_answers_for_a_finished_job() -> None:
    body = stored(keyed({"a": 1})).body_hash or ""
    stub = encode_record(Stub(state=JobState.COMPLETED, created=1, ended=2, body_hash=body))
    assert not created(keyed({"a": 1}), stub)
    with pytest.raises(IdempotencyConflict):
        created(keyed({"a": 2}), stub)


def test_a_repeated_call_that_finds_its_own_record_has_created_it() -> None:
    draft = keyed({"a": 1})
    job, _ = submitter().call(KEYS, draft, NOW_MS)
    assert was_created(draft, job, "E", job.doc, again=True)
    assert not was_created(draft, job, "E", job.doc, again=False)
    plain = draft_of("t", {}, {})
    job, _ = submitter().call(KEYS, plain, NOW_MS)
    assert was_created(plain, job, "E", job.doc, again=True)


@pytest.mark.parametrize("found", [b"", b"garbage", b'{"state":1}', b"\x00\xff\x9c"])
def test_a_damaged_record_is_told_as_such(found: bytes) -> None:
    with pytest.raises(ScriptFailed, match=r"the record of job .* is damaged"):
        created(keyed({}), found)


def test_a_damaged_key_is_told_with_the_jobs_id() -> None:
    draft = draft_of("t", {}, {})
    job, _ = submitter().call(KEYS, draft, NOW_MS)
    with pytest.raises(ScriptFailed, match=job.id):
        was_created(draft, job, "B", None, again=False)


def test_an_unknown_outcome_names_its_job() -> None:
    error = with_job(StoreUnavailable("down", outcome="unknown"), "the-id")
    assert (error.job_id, error.outcome, error.reason) == ("the-id", "unknown", "down")
    assert "the-id" in str(error)
