"""How long to wait before the next attempt: pure functions of the count and an injected rng.

A task that raised is retried by its own `Retry`; a job whose worker died is retried by one fixed
rule, because a crash says nothing about the task's remote end.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from redjob.errors import InvalidArgument

if TYPE_CHECKING:
    from random import Random

Jitter = Literal["full", "equal", "none"]

_LONGEST_S = 10 * 365 * 86_400  # the horizon: nothing is scheduled further ahead
_CRASH_BASE_S = 1.0
_CRASH_FACTOR = 2.0
_CRASH_CAP_S = 60.0


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How often a task that raises is tried, and how long it waits in between.

    `max_attempts` counts the first attempt too.  The wait after the n-th failure is at most
    min(cap_s, base_s · factor^(n-1)) seconds, of which `jitter` takes a random part: "full" between
    none and all of it, "equal" between half and all, "none" exactly all.
    Raises InvalidArgument (a ValueError) for values that make no sense.
    """

    max_attempts: int = 5
    base_s: float = 1.0
    factor: float = 2.0
    cap_s: float = 3600.0
    jitter: Jitter = "full"

    def __post_init__(self) -> None:
        # Nothing checks the types before, and 2.5 attempts would fail at the worker, not here.
        if not self.max_attempts >= 1 or self.max_attempts % 1:
            raise _invalid("max_attempts", self.max_attempts, "use a whole number, 1 or more")
        # Each comparison is written so that NaN fails it.
        if not 0 <= self.base_s < math.inf:
            raise _invalid("base_s", self.base_s, "use seconds, 0 or more")
        if not 1 <= self.factor < math.inf:
            raise _invalid("factor", self.factor, "use 1 for a constant delay, 2 to double it")
        if not 0 <= self.cap_s <= _LONGEST_S:
            raise _invalid("cap_s", self.cap_s, f"use seconds from 0 to {_LONGEST_S} (ten years)")
        if self.jitter not in get_args(Jitter):
            raise _invalid("jitter", self.jitter, f"use one of {', '.join(get_args(Jitter))}")

    def delay_ms(self, failures: int, rng: Random) -> int:
        """Return the milliseconds to wait after the `failures`-th failure (1 or more).

        Formulas and names of the jitters: AWS Architecture Blog, "Exponential Backoff and Jitter"
        (2015).  Raises InvalidArgument if `failures` is less than 1.
        """
        if failures < 1:
            raise _invalid("failures", failures, "count from 1: the failure just seen")
        ceiling_s = _ceiling_s(self.base_s, self.factor, self.cap_s, failures)
        match self.jitter:
            case "full":
                return round(rng.uniform(0, ceiling_s) * 1000)
            case "equal":
                return _equal_jitter_ms(ceiling_s, rng)
            case "none":
                return round(ceiling_s * 1000)


def crash_delay_ms(crashes: int, rng: Random) -> int:
    """Return the milliseconds to wait after the `crashes`-th crash (1 or more) of a job's worker.

    Equal jitter (source: see `Retry.delay_ms`) on min(60 s, 1 s · 2^(n-1)): never at once, since
    the job may be what kills its workers.  Raises InvalidArgument if `crashes` is less than 1.
    """
    if crashes < 1:
        raise _invalid("crashes", crashes, "count from 1: the crash just seen")
    ceiling_s = _ceiling_s(_CRASH_BASE_S, _CRASH_FACTOR, _CRASH_CAP_S, crashes)
    return _equal_jitter_ms(ceiling_s, rng)


def _ceiling_s(base_s: float, factor: float, cap_s: float, count: int) -> float:
    try:
        return min(cap_s, base_s * factor ** (count - 1))
    except OverflowError:  # the power, from about 2^1024 on; a product only becomes inf
        return cap_s if base_s else 0.0


def _equal_jitter_ms(ceiling_s: float, rng: Random) -> int:
    return round(rng.uniform(ceiling_s / 2, ceiling_s) * 1000)


def _invalid(field: str, value: object, remedy: str) -> InvalidArgument:
    return InvalidArgument(field, f"is {value!r}", remedy)
