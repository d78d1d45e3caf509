"""Exceptions as text: type, message and traceback, at most 8 KiB and valid UTF-8 whatever they hold."""

from __future__ import annotations

import traceback

from redjob.model import ErrorInfo

_TYPE_BYTES = 256
_MESSAGE_BYTES = 1536
_TRACEBACK_BYTES = 6144
_FRAMES = 50
_CUT = " … "


def describe(exc: BaseException, now_ms: int) -> ErrorInfo:
    """Return what is kept of an exception, as of now_ms (wall ms). Never raises.

    The frames of the worker itself are left out: the first entry is the task's own.
    """
    return ErrorInfo(
        type=_clean(type(exc).__name__, _TYPE_BYTES),
        message=_clean(_message(exc), _MESSAGE_BYTES),
        at=now_ms,
        traceback=_clean(_traceback(exc), _TRACEBACK_BYTES),
    )


def _message(exc: BaseException) -> str:
    try:
        return str(exc)
    except BaseException as failure:  # noqa: BLE001 - a __str__ of a user's class may raise anything
        return f"(its text cannot be made: {type(failure).__name__})"


def _traceback(exc: BaseException) -> str:
    frames = exc.__traceback__.tb_next if exc.__traceback__ else None
    try:
        return "".join(traceback.format_exception(type(exc), exc, frames, limit=-_FRAMES))
    except BaseException as failure:  # noqa: BLE001 - as above, also for its causes
        return f"(no traceback: {type(failure).__name__})"


def _clean(text: str, most: int) -> str:
    """Return text that is valid UTF-8 and of at most `most` bytes: both ends, where it is too long."""
    data = text.encode("utf-8", "replace")
    if len(data) > most:
        half = (most - len(_CUT.encode())) // 2
        data = data[:half] + _CUT.encode() + data[-half:]
    return data.decode("utf-8", "ignore")
