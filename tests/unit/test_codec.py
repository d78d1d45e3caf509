"""Records, stubs, pasts, tombstones and journal entries: what is written is what is read."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redjob.codec import (
    HEAD,
    decode_attempts,
    decode_entry,
    decode_outcome,
    decode_record,
    decode_run,
    decode_stub,
    decode_tombstone,
    encode_outcome,
    encode_past,
    encode_record,
    encode_stub,
    head_of,
    home_of,
    is_stub,
)
from redjob.model import (
    Attempts,
    ErrorInfo,
    JobState,
    Options,
    Outcome,
    Past,
    Record,
    Stub,
)

AT = 1_795_997_146_889  # 2026-11-30
names = st.from_regex(r"[A-Za-z0-9_.:-]{1,128}", fullmatch=True)
times = st.integers(10**12, 10**13 - 1)  # 13 digits: 2001 to 2286
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def record(**given: Any) -> Record:
    fields: dict[str, Any] = {"task": "t", "queue": "q", "payload": msgspec.Raw(b"{}")} | given
    return Record(home=home_of(AT), created=AT, **fields)


@pytest.mark.parametrize(
    ("ms", "day"),
    [
        (0, "1970-01-01"),
        (86_399_999, "1970-01-01"),
        (86_400_000, "1970-01-02"),
        (AT, "2026-11-30"),
        (1_582_934_400_000, "2020-02-29"),
    ],
)
def test_home_is_the_day_in_utc(ms: int, day: str) -> None:
    assert home_of(ms) == day


def test_a_record_is_readable_json_without_its_defaults() -> None:
    assert encode_record(record()) == (
        b'{"home":"2026-11-30","created":1795997146889,"task":"t","queue":"q","payload":{}}'
    )


@given(created=times, run_at=times, queue=names, tenant=names, payload=json_values)
def test_any_record_comes_back_and_begins_in_fixed_width(
    created: int, run_at: int, queue: str, tenant: str, payload: Any
) -> None:
    raw = msgspec.Raw(json.dumps(payload).encode())
    given_ = Record(
        home=home_of(run_at), created=created, run_at=run_at, task="t", queue=queue, tenant=tenant,
        payload=raw, options=Options(max_attempts=7), body_hash="h",
    )  # fmt: skip
    doc = encode_record(given_)
    found = decode_record(doc)
    assert json.loads(bytes(found.payload)) == payload
    assert msgspec.structs.replace(found, payload=raw) == given_
    # what scripts cut out by position
    assert doc[9:19].decode() == home_of(run_at)
    assert doc[31:HEAD] == str(created).encode()
    assert head_of(doc) == doc[:HEAD]


def test_a_stub_is_told_from_a_record_by_its_first_bytes() -> None:
    stub = Stub(state=JobState.COMPLETED, created=1, ended=2, body_hash="h")
    ttl_ms, _, doc = encode_stub(stub, 5000).partition(b" ")
    assert (ttl_ms, decode_stub(doc)) == (b"5000", stub)
    assert is_stub(doc)
    assert not is_stub(encode_record(record()))


def test_a_job_without_a_past_has_an_empty_field() -> None:
    assert decode_attempts(b"") == Attempts(0, "", Past())


@pytest.mark.parametrize(
    "past",
    [
        Past(),
        Past(failures=2, crashes=1, last="failed"),
        Past(dead="crash", error=ErrorInfo(type="E", message="a b\nc", at=AT, traceback="x y")),
        Past(checkpoint=msgspec.Raw(b'{"page": 7}')),
    ],
    ids=["none", "counts", "error", "checkpoint"],
)
def test_a_past_comes_back_beside_its_attempt_and_tag(past: Past) -> None:
    found = decode_attempts(b"3 abc " + encode_past(past))
    assert (found.attempt, found.tag, found.past.error) == (3, "abc", past.error)
    assert encode_past(found.past) == encode_past(past)


def test_a_past_is_one_line() -> None:
    """The call of finish carries past and result with a line feed between."""
    past = Past(error=ErrorInfo(type="E", message="a\nb", at=AT))
    assert b"\n" not in encode_past(past)


def test_a_field_of_attempts_may_lack_its_past() -> None:
    assert decode_attempts(b"2 tag ") == Attempts(2, "tag", Past())


@pytest.mark.parametrize("field", [b"2", b"x tag {}", b"2 tag [", b"2 tag {"])
def test_a_damaged_field_of_attempts_is_an_error(field: bytes) -> None:
    with pytest.raises((ValueError, msgspec.DecodeError)):
        decode_attempts(field)


def test_an_outcome_comes_back() -> None:
    outcome = Outcome(state=JobState.COMPLETED, ended=AT, attempt=2, result=msgspec.Raw(b"[1,2]"))
    assert decode_outcome(encode_outcome(outcome)) == outcome


@pytest.mark.parametrize(
    ("letter", "state"),
    [
        ("C", JobState.COMPLETED),
        ("K", JobState.CANCELLED),
        ("X", JobState.EXPIRED),
        ("F", JobState.FAILED),
    ],
)
def test_a_tombstone_says_how_when_and_by_whom(letter: str, state: JobState) -> None:
    found = decode_tombstone(f"{letter} 12 {AT} 3 tag".encode())
    assert found == (state, 12, AT, 3, "tag")


def test_a_run_is_an_attempt_and_a_worker_of_any_name() -> None:
    assert decode_run(b"2 worker one") == (2, "worker one")


def fields(**changed: bytes) -> dict[bytes, bytes]:
    found = {"op": b"finish", "epoch": b"4", "tag": b"t", "prev": b"p", "at": b"9", "r": b""}
    return {name.encode(): value for name, value in (found | changed).items()}


def test_a_journal_entry_is_read_from_a_list_and_from_a_dict() -> None:
    given_ = fields(worker=b"w", r=b"id 2026-11-30 T 1")
    flat = [word for pair in given_.items() for word in pair]
    entry = decode_entry(b"17-0", given_)
    assert entry == decode_entry(b"17-0", flat)
    assert entry == (17, "finish", 4, "t", "p", 9, b"id 2026-11-30 T 1", "w")


def test_an_entry_without_a_worker_or_jobs_has_none() -> None:
    entry = decode_entry(b"1-0", fields())
    assert (entry.worker, list(entry.lines())) == ("", [])


def test_the_right_parts_of_a_line_may_be_missing() -> None:
    block = b'a 2026-11-30 T\nb 2026-11-30 C 2\nc 2026-11-30 S 1 99 q {"a": "b c"}'
    first, second, third = decode_entry(b"1-0", fields(r=block)).lines()
    assert first == ("a", "2026-11-30", "T", 0, 0, "", b"")
    assert second[2:4] == ("C", 2)
    assert third[3:] == (1, 99, "q", b'{"a": "b c"}')
