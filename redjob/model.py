"""Data that travels between client, Redis and worker, and the table of states."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

import msgspec

DEFAULT_TENANT = "default"
DEFAULT_PRIORITY = 5
PRIORITIES = {"high": 2, "normal": 5, "low": 8}


class JobState(StrEnum):
    """Where a job is; each state is one place in Redis (see `PLACES`)."""

    WAITING = "WAITING"
    SCHEDULED = "SCHEDULED"
    DISPATCHED = "DISPATCHED"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"

    @property
    def terminal(self) -> bool:
        """Whether only an explicit replay can leave this state."""
        return self in TERMINAL


TERMINAL = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED})

# The letter of a state in journal lines, script replies and tombstones; R (ready) is DISPATCHED too.
LETTERS = {
    "W": JobState.WAITING,
    "S": JobState.SCHEDULED,
    "D": JobState.DISPATCHED,
    "R": JobState.DISPATCHED,
    "T": JobState.RUNNING,
    "C": JobState.COMPLETED,
    "F": JobState.FAILED,
    "K": JobState.CANCELLED,
    "X": JobState.EXPIRED,
}

S, D, R = JobState.SCHEDULED, JobState.DISPATCHED, JobState.RUNNING
C, F, K, X = JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED

# (state before, script and its outcome, state after): the whole life of a job. The store tests
# drive every row against the Lua, docs/architecture.md draws it.
TRANSITIONS: tuple[tuple[JobState | None, str, JobState], ...] = (
    (None, "enqueue later", S),
    (None, "enqueue now", D),
    (S, "fire", D),
    (S, "reschedule", S),
    (S, "cancel", K),
    (D, "take", R),
    (D, "begin", R),
    (D, "release", D),
    (D, "requeue", D),
    (D, "cancel", K),
    (R, "heartbeat", R),
    (R, "finish complete", C),
    (R, "finish retry", S),
    (R, "finish snooze", S),
    (R, "finish handback", D),
    (R, "finish dead", F),
    (R, "finish expire", X),
    (R, "finish retry, cancel asked", K),
    (R, "reclaim retry", S),
    (R, "reclaim dead", F),
    (R, "reclaim retry, cancel asked", K),
    (S, "finish complete late", C),
    (D, "finish complete late", C),
    (F, "finish complete late", C),
    (D, "heartbeat after rollback", R),
    (S, "heartbeat after rollback", R),
    (F, "replay", S),
)


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a job asks of its runs; defaults are left out of the stored JSON.

    `_s` fields are seconds, `expires_at` is wall milliseconds after which the job is not begun.
    """

    max_attempts: int = 5
    max_crashes: int = 3
    base_s: float = 1.0
    factor: float = 2.0
    cap_s: float = 3600.0
    jitter: Literal["full", "equal", "none"] = "full"
    timeout_s: float | None = None
    expires_at: int | None = None
    result_ttl_s: float = 3600.0
    key: str | None = None
    key_window_s: float = 86400.0


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The immutable record of a job, stored as JSON under `job:<id>`.

    `home` (day of the first run_at) and `created` come first in fixed width: scripts copy and
    compare them by position. `run_at` is the first due time in ms, left out when it was "now".
    """

    home: str
    created: int
    run_at: int = 0
    task: str
    queue: str
    tenant: str = DEFAULT_TENANT
    priority: int = DEFAULT_PRIORITY
    payload: msgspec.Raw
    options: Options = Options()
    body_hash: str | None = None

    @property
    def due_ms(self) -> int:
        """The first due time, wall ms."""
        return self.run_at or self.created


class ErrorInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why an attempt did not succeed; text only, never an object to revive."""

    type: str
    message: str
    at: int
    traceback: str | None = None


class Past(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What earlier attempts left behind: the JSON part of an `attempts` field.

    `dead` says why the job died ("crash" lets a late success revive it, "failure" does not).
    `last` is how the last attempt ended: failed, crashed, snoozed, handed_back.
    """

    failures: int = 0
    crashes: int = 0
    last: str | None = None
    dead: Literal["failure", "crash", "rejected"] | None = None
    error: ErrorInfo | None = None
    checkpoint: msgspec.Raw = msgspec.Raw()  # empty for none: msgspec cannot read Raw in a union


class Attempts(msgspec.Struct, frozen=True):
    """One field of the `attempts` hash: attempts begun so far, tag of the last change, past."""

    attempt: int
    tag: str
    past: Past


class Stub(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What stays of a finished keyed job under `job:<id>` until its window ends.

    `state` comes first: scripts tell a stub from a record by its first nine bytes.
    """

    state: JobState
    created: int
    ended: int
    body_hash: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The JSON under `result:<id>`: how a job ended and what it returned."""

    state: JobState
    ended: int
    attempt: int
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: ErrorInfo | None = None


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A job as people see it; times are wall ms, None means not known or not so.

    `held_by` says why a DISPATCHED job is not in its stream (depth, pause, limit).
    """

    id: str
    state: JobState
    task: str | None = None
    queue: str | None = None
    tenant: str | None = None
    priority: int | None = None
    created_ms: int | None = None
    run_at_ms: int | None = None
    attempt: int = 0
    failures: int = 0
    crashes: int = 0
    worker: str | None = None
    lease_until_ms: int | None = None
    held_by: str | None = None
    cancel_requested_ms: int | None = None
    ended_ms: int | None = None
    error: ErrorInfo | None = None
    payload: Any = None
    result: Any = None
    progress: Any = None
