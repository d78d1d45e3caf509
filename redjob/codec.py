"""Bytes to model and back: records, stubs, attempts, tombstones, journal entries, day of a time.

The formats are the public contract of `lua/README.md`; nothing here talks to a server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import msgspec

from redjob.model import LETTERS, Attempts, JobState, Outcome, Past, Record, Stub

T = TypeVar("T")
HEAD = 44  # bytes of a record that hold home and created: what scripts compare
_STUB = b'{"state":'
_LONGEST_MS = 10 * 366 * 86_400_000  # the horizon of times
_DAY_MS = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def decoder_of(kind: type[T]) -> Callable[[bytes], T]:
    """Return a decoder that raises msgspec.DecodeError for everything that it cannot decode.

    msgspec itself ends in RecursionError on JSON that is nested deeper than the stack: whoever made
    such a record would else stop each loop that has to look at it.
    """
    decode = msgspec.json.Decoder(kind).decode

    def decode_any(doc: bytes) -> T:
        try:
            return decode(doc)
        except RecursionError as exc:
            raise msgspec.DecodeError("JSON is nested too deep") from exc

    return decode_any


_encode = msgspec.json.Encoder().encode
_stub = decoder_of(Stub)
_past = decoder_of(Past)

encode_record = _encode
decode_record = decoder_of(Record)
encode_outcome = _encode
decode_outcome = decoder_of(Outcome)


@lru_cache(maxsize=4096)
def _day(days: int) -> str:
    return (_EPOCH + timedelta(days=days)).strftime("%Y-%m-%d")


def home_of(run_at_ms: int) -> str:
    """Return the UTC day of a time in wall ms as YYYY-MM-DD: the job's home partition in Postgres."""
    return _day(run_at_ms // _DAY_MS)


def head_of(doc: bytes) -> bytes:
    """Return the fixed-width start of a record: home and created."""
    return doc[:HEAD]


def is_stub(doc: bytes) -> bool:
    """Whether the value of `job:<id>` is what is left of a finished keyed job."""
    return doc.startswith(_STUB)


def decode_stub(doc: bytes) -> Stub:
    """Decode a stub; raises msgspec.DecodeError for anything else."""
    return _stub(doc)


def encode_stub(stub: Stub, ttl_ms: int) -> bytes:
    """Return `<ttl ms> <JSON>`, as scripts take it."""
    return b"%d %b" % (ttl_ms, _encode(stub))


def ms_of(seconds: float) -> int:
    """Return seconds that a record asks for as ms that Redis takes: 0 for nothing, negative or NaN.

    At most the horizon of times: what a record says must not break a script half way.
    """
    if not seconds > 0:
        return 0
    return int(min(seconds * 1000, _LONGEST_MS))


def stub_of(record: Record, state: JobState, ended_ms: int, now_ms: int) -> bytes:
    """Return what is to stay of a keyed job until its window ends, as scripts take it; b"" for nothing."""
    left_ms = ended_ms + ms_of(record.options.key_window_s) - now_ms
    if record.body_hash is None or left_ms <= 0:
        return b""
    stub = Stub(state=state, created=record.created, ended=ended_ms, body_hash=record.body_hash)
    return encode_stub(stub, left_ms)


def encode_past(past: Past) -> bytes:
    """Return the JSON part of an attempts field."""
    return _encode(past)


def decode_attempts(field: bytes) -> Attempts:
    """Decode `<attempt> <tag> <JSON>`; an empty field is a job without a past."""
    if not field:
        return Attempts(0, "", Past())
    attempt, tag, past = field.split(b" ", 2)
    return Attempts(int(attempt), tag.decode(), _past(past) if past else Past())


class Tombstone(NamedTuple):
    """What answers for a job that is gone: `<state> <seq> <ms> <attempt> <tag>`."""

    state: JobState
    seq: int
    ended_ms: int
    attempt: int
    tag: str


def decode_tombstone(field: bytes) -> Tombstone:
    """Decode one field of the `finished` hash."""
    state, seq, ended, attempt, tag = field.decode().split(" ", 4)
    return Tombstone(LETTERS[state], int(seq), int(ended), int(attempt), tag)


class Run(NamedTuple):
    """One field of `runs`: who runs which attempt."""

    attempt: int
    worker: str


def decode_run(field: bytes) -> Run:
    """Decode `<attempt> <worker>`."""
    attempt, worker = field.decode().split(" ", 1)
    return Run(int(attempt), worker)


class JournalLine(NamedTuple):
    """One job in a journal entry: where it went. Parts that an op does not have are empty.

    `place` is a letter of `redjob.model.LETTERS`, or L for a job that is lost; `data` is the record or the past, as JSON.
    """

    id: str
    home: str
    place: str
    attempt: int
    run_at_ms: int
    queue: str
    data: bytes


class JournalEntry(NamedTuple):
    """One entry of the journal; `block` is decoded only by who needs its lines."""

    seq: int
    op: str
    epoch: int
    tag: str
    prev: str
    at_ms: int
    block: bytes
    worker: str

    def lines(self) -> Iterator[JournalLine]:
        """Decode the record block, a line per job."""
        for line in self.block.split(b"\n") if self.block else ():
            parts = line.split(b" ", 6)
            yield JournalLine(
                parts[0].decode(),
                parts[1].decode(),
                parts[2].decode(),
                int(parts[3]) if len(parts) > 3 else 0,
                int(parts[4]) if len(parts) > 4 else 0,
                parts[5].decode() if len(parts) > 5 else "",
                parts[6] if len(parts) > 6 else b"",
            )


def decode_entry(entry_id: bytes, fields: list[bytes] | dict[bytes, bytes]) -> JournalEntry:
    """Decode an entry as XRANGE or XREAD returns it: fields as a flat list or as a dict."""
    found: dict[bytes, Any] = (
        fields if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2], strict=True))
    )
    return JournalEntry(
        int(entry_id.split(b"-", 1)[0]),
        found[b"op"].decode(),
        int(found[b"epoch"]),
        found[b"tag"].decode(),
        found[b"prev"].decode(),
        int(found[b"at"]),
        found[b"r"],
        found.get(b"worker", b"").decode(),
    )
