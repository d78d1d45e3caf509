"""Waiting for a job to end: what is read from `done`, and what an end means to who waits.

Pure: the clients differ in how they block.  Order is what makes it safe: say that somebody waits
(`waiters`), read where `done` stands, then look at the job.  An end before the look is seen by it;
a later one is announced beyond the position that was read.  An announcement can still be lost (a
failover, a trimmed stream), so the job is looked at again every `LOOK_EVERY_S`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from redjob.calls.reads import Query
from redjob.errors import InvalidArgument, JobFailed
from redjob.model import JobInfo, JobState

if TYPE_CHECKING:
    from redjob.calls.call import Arg
    from redjob.keys import PartitionKeys

LOOK_EVERY_S = 1.0
_WAITERS_TTL_S = 60  # renewed at each look
_ENTRIES = 1000  # read at a time; the stream keeps about ten times as many


class Ended(NamedTuple):
    """Announced ends: where to read on, and the ids."""

    position: str
    ids: frozenset[str]


def listen(part: PartitionKeys) -> Query[str]:
    """Say that somebody waits in this partition, and read where `done` stands."""
    commands: list[tuple[Arg, ...]] = [
        ("SET", part.waiters, "1", "EX", _WAITERS_TTL_S),
        ("XREVRANGE", part.done, "+", "-", "COUNT", 1),
    ]
    return Query(part, commands, lambda raw: raw[1][0][0].decode() if raw[1] else "0-0")


def read_done(part: PartitionKeys, position: str, block_s: float) -> tuple[Arg, ...]:
    """The command that waits for the next ends after a position."""
    block_ms = max(1, math.ceil(block_s * 1000))  # 0 would be for ever
    return ("XREAD", "COUNT", _ENTRIES, "BLOCK", block_ms, "STREAMS", part.done, position)


def ended(raw: Any, position: str) -> Ended:
    """Read the reply of `read_done`; None, the reply after a timeout, is no end."""
    if not raw:
        return Ended(position, frozenset())
    entries = raw[0][1]
    ids = frozenset(fields[fields.index(b"id") + 1].decode() for _, fields in entries)
    return Ended(entries[-1][0].decode(), ids)


def result_of(info: JobInfo) -> Any:
    """Return what a job that has ended returned. Raises JobFailed for every other end."""
    if info.state is JobState.COMPLETED:
        return info.result
    error = info.error
    raise JobFailed(info.id, info.state, f"{error.type}: {error.message}" if error else None)


def timeout_of(timeout_s: float) -> float:
    """Return a timeout in seconds. Raises InvalidArgument unless it is finite and not negative."""
    if not 0 <= timeout_s < math.inf:  # NaN fails it too
        raise InvalidArgument("timeout_s", f"is {timeout_s}", "pass 0 or more seconds")
    return timeout_s
