"""Checks of what callers pass: times, delays, counts, priorities, keys.

Pure, and the first thing that a call does: whatever is refused here has stored nothing.  Each error
names the field and says what to pass instead; payloads are checked in `redjob.payload`.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Literal, cast

from redjob.config import Limits
from redjob.errors import InvalidArgument
from redjob.model import PRIORITIES

Ack = Literal["memory", "replicated"]
REPLICAS: dict[str, int] = {"memory": 0, "replicated": 1}  # that must have it before a call returns
KEY_BYTES = 255
LIMITS = Limits()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_YEAR_S = 366 * 86_400


def ack_of(ack: object) -> Ack:
    """Return an ack level. Raises InvalidArgument for one that there is not."""
    if ack == "durable":
        raise InvalidArgument("ack", "is 'durable', which needs Postgres", "use 'replicated'")
    if ack not in REPLICAS:
        raise InvalidArgument("ack", f"is {ack!r:.80}", "use 'memory' or 'replicated'")
    return cast("Ack", ack)


def wall_ms_of(field: str, when: object) -> int:
    """Return a moment as wall ms, rounded up so that nothing is early; before 1970 counts as 1.

    Raises InvalidArgument unless `when` is a datetime with a time zone.
    """
    if not isinstance(when, datetime):
        raise InvalidArgument(field, f"is a {_kind(when)}", "pass a datetime with a time zone")
    if when.utcoffset() is None:
        raise InvalidArgument(
            field, "is a datetime without a time zone", "add one, as in datetime(..., tzinfo=UTC)"
        )
    return max(1, -((_EPOCH - when) // _MS))


def delay_ms_of(field: str, delay: object, limits: Limits = LIMITS) -> int:
    """Return a delay, a timedelta or a number of seconds, as ms, rounded up.

    Raises InvalidArgument for anything else, for NaN, below 0 and beyond the horizon.
    """
    if isinstance(delay, timedelta):
        delay = delay.total_seconds()
    seconds = _number(field, delay, "pass seconds or a timedelta")
    if seconds < 0:
        raise InvalidArgument(field, f"is negative ({seconds:g} s)", "pass 0 or more")
    if seconds > limits.horizon_s:
        raise _beyond(field, limits)
    # Rounded to µs first: 0.07 s is a little over 70 ms in binary, and is not meant to be 71 ms.
    return math.ceil(round(seconds * 1000, 3))


def check_horizon(field: str, run_at_ms: int, now_ms: int, limits: Limits = LIMITS) -> None:
    """Raise InvalidArgument if a time (wall ms) lies further ahead than redjob looks."""
    if run_at_ms - now_ms > limits.horizon_s * 1000:
        raise _beyond(field, limits)


def seconds_of(field: str, value: object, *, zero: bool = False) -> float:
    """Return a span in seconds, which must be finite, positive (or 0 where `zero` allows it).

    Raises InvalidArgument for anything else.
    """
    seconds = _number(field, value, "pass a number of seconds")
    if seconds < 0 or (seconds == 0 and not zero):
        least = "0 or more" if zero else "more than 0"
        raise InvalidArgument(field, f"is {seconds:g}", f"pass {least} seconds")
    if seconds > LIMITS.horizon_s:
        raise _beyond(field, LIMITS)
    return seconds


def count_of(field: str, value: object) -> int:
    """Return a whole number of 1 or more. Raises InvalidArgument for anything else."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 1 << 31:
        return value
    raise InvalidArgument(field, f"is {value!r:.80}", "pass a whole number, 1 or more")


def priority_of(priority: object) -> int:
    """Return a priority as a number, 0 (first) to 9. Raises InvalidArgument for anything else."""
    if isinstance(priority, str):
        found = PRIORITIES.get(priority)
    elif isinstance(priority, int) and not isinstance(priority, bool) and 0 <= priority <= 9:
        found = priority
    else:
        found = None
    if found is None:
        names = ", ".join(PRIORITIES)
        raise InvalidArgument(
            "priority", f"is {priority!r:.80}", f"pass one of {names}, or 0 (first) to 9"
        )
    return found


def check_key(key: object) -> str:
    """Return an idempotency key unchanged: any text of 1 to 255 bytes of UTF-8.

    Raises InvalidArgument for anything else.
    """
    if not isinstance(key, str) or not key:
        raise InvalidArgument("idempotency_key", f"is {key!r:.80}", "pass text, or leave it out")
    try:
        size = len(key.encode())
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            "idempotency_key", "is not valid Unicode (a lone surrogate)", "decode it as UTF-8 first"
        ) from error
    if size > KEY_BYTES:
        raise InvalidArgument(
            "idempotency_key", f"has {size} bytes", f"pass at most {KEY_BYTES}, such as a hash"
        )
    return key


def _number(field: str, value: object, remedy: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument(field, f"is a {_kind(value)}", remedy)
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds):
        raise InvalidArgument(field, f"is not finite ({seconds:g})", remedy)
    return seconds


def _beyond(field: str, limits: Limits) -> InvalidArgument:
    years = f"{limits.horizon_s / _YEAR_S:g}"
    return InvalidArgument(
        field, f"lies more than {years} years ahead", f"stay within {years} years"
    )


def _kind(value: object) -> str:
    return type(value).__name__
