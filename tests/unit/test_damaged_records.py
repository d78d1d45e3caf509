"""What Redis holds may be anything: every decoder says so by one error, whatever it is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from redjob.calls.owner_reads import Order, order_of
from redjob.calls.work import Start
from redjob.codec import decode_attempts, decode_outcome, decode_record, decode_stub
from redjob.keys import PartitionKeys
from redjob.worker.admit import admit

if TYPE_CHECKING:
    from collections.abc import Callable

DEEP = b"[" * 100_000 + b"]" * 100_000
RECORD = b'{"home":"2026-01-01","created":1790000000000,"task":"t","queue":"q","payload":{"a":%b}}'


def _past(doc: bytes) -> object:
    return decode_attempts(b'1 tag {"checkpoint":%b}' % doc)


def _record(doc: bytes) -> object:
    return decode_record(RECORD % doc)


def _outcome(doc: bytes) -> object:
    return decode_outcome(b'{"state":"COMPLETED","ended":1,"attempt":1,"result":%b}' % doc)


@pytest.mark.parametrize("decode", [_record, _past, _outcome, decode_stub])
@pytest.mark.parametrize(
    "doc",
    [DEEP, b'{"a":' * 100_000, b"\xff", b"[", b""],
    ids=["list", "object", "bytes", "end", "nothing"],
)
def test_a_decoder_raises_one_kind_of_error(decode: Callable[[bytes], object], doc: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(doc)


def test_a_record_as_it_should_be_is_decoded() -> None:
    assert decode_record(RECORD % b"1").queue == "q"


def test_a_record_that_cannot_be_read_is_parked_by_the_defaults() -> None:
    assert order_of(RECORD % DEEP) == Order()


def test_a_job_whose_record_cannot_be_read_is_rejected_where_it_was_taken() -> None:
    part = PartitionKeys("redjob", 0, "p0.0")
    for doc in (RECORD % DEEP, DEEP, b"\xff"):
        admitted = admit(Start("id", b"", doc), part, {}, ("q",), 1_790_000_000_000)
        assert admitted.end is not None
        assert (admitted.end.outcome, admitted.end.queue) == ("F", "q")
