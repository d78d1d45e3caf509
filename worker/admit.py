"""Whether a job that was taken may start: what its record decides, as a function of values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from redjob.calls.work import End, Start
from redjob.codec import (
    decode_attempts,
    decode_record,
    decoder_of,
    encode_record,
    head_of,
    home_of,
)
from redjob.errors import InvalidArgument, UnknownTask
from redjob.keys import PartitionKeys
from redjob.model import ErrorInfo, Past, Record
from redjob.names import check_name
from redjob.worker import outcome
from redjob.worker.attempt import Attempt
from redjob.worker.describe import describe
from redjob.worker.table import RegisteredTask

_NO_PAST = Past()
_FIXED = slice(19, 31)  # of a record: what stands between home and created, which scripts copy
_BETWEEN = b'","created":'


class Admitted(NamedTuple):
    """An attempt with what to start, or (task None) with the end that its record decides."""

    attempt: Attempt
    task: RegisteredTask | None
    arguments: dict[str, Any]
    end: End | None


class _Named(msgspec.Struct):
    """What is left of a record that lacks something."""

    queue: str


_decode_named = decoder_of(_Named)


def admit(
    start: Start,
    part: PartitionKeys,
    tasks: Mapping[str, RegisteredTask],
    queues: tuple[str, ...],
    now_ms: int,
) -> Admitted:
    """Decide over a started job at server time now_ms (wall ms): run it, or end it at once.

    `queues` are those of the worker: one of them stands in for a record that names none.
    """
    number, past = _past_of(start.attempts)
    try:
        record = _record_of(start.doc, queues)
    except ValueError as exc:
        attempt = _stand_in(start, number, part, past, queues, now_ms)
        return _rejected(attempt, "PayloadMismatch", f"its record is damaged: {exc}", now_ms)
    attempt = Attempt(start.id, number, part, head_of(start.doc), record, past)
    expires_at = record.options.expires_at
    if expires_at is not None and expires_at <= now_ms:
        return Admitted(attempt, None, {}, outcome.expired(attempt, now_ms))
    task = tasks.get(record.task)
    if task is None:
        return _rejected(attempt, "UnknownTask", str(UnknownTask(record.task)), now_ms)
    try:
        arguments = task.decode_arguments(record.payload)
    except Exception as exc:  # noqa: BLE001 - hooks of a user's types run here
        text = describe(exc, now_ms).message
        return _rejected(attempt, "PayloadMismatch", text, now_ms)
    return Admitted(attempt, task, arguments, None)


def _record_of(doc: bytes, queues: tuple[str, ...]) -> Record:
    """Decode a record, and check what would damage keys and the journal. Raises ValueError."""
    record = decode_record(doc)
    if doc[_FIXED] != _BETWEEN:
        raise InvalidArgument("home", "does not come first", "begin with home and created")
    if record.queue not in queues:
        check_name("queue", record.queue)
    return record


def _past_of(field: bytes) -> tuple[int, Past]:
    """Return the number of this attempt, and what earlier ones left; a damaged past is none."""
    if not field:
        return 1, _NO_PAST
    try:
        attempts = decode_attempts(field)
    except ValueError:  # as msgspec.DecodeError is
        number = field.split(b" ", 1)[0]
        return int(number) + 1 if number.isdigit() else 1, _NO_PAST
    return attempts.attempt + 1, attempts.past


def _stand_in(
    start: Start,
    number: int,
    part: PartitionKeys,
    past: Past,
    queues: tuple[str, ...],
    now_ms: int,
) -> Attempt:
    """Return an attempt that can be ended although its record cannot be read.

    Its head goes into a line of the journal, so that it must not be the damaged one.
    """
    try:
        queue = check_name("queue", _decode_named(start.doc).queue)
    except ValueError:
        queue = queues[0]
    record = Record(
        home=home_of(now_ms), created=now_ms, task="", queue=queue, payload=msgspec.Raw(b"null")
    )
    return Attempt(start.id, number, part, head_of(encode_record(record)), record, past)


def _rejected(attempt: Attempt, kind: str, reason: str, now_ms: int) -> Admitted:
    error = ErrorInfo(type=kind, message=reason, at=now_ms)
    return Admitted(attempt, None, {}, outcome.rejected(attempt, error, now_ms))
