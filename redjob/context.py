"""What a running task can ask about its job and tell about itself; between app and worker in the chain.

The worker sets `running` around each attempt; a task calls `current_job()`. Threads that a task
starts by itself see it only if they run in a copy of the task's context (`asyncio.to_thread` does).
"""

from __future__ import annotations

from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import msgspec

from redjob.config import Limits
from redjob.errors import InvalidArgument, RedjobError
from redjob.model import Past, Record

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_encode = msgspec.json.Encoder().encode
_LIMITS = Limits()


class NoCurrentJob(RedjobError, LookupError):
    """Raised when code that runs outside of a job asks for the current one."""

    code = "no_current_job"

    def __init__(self) -> None:
        super().__init__(
            "there is no current job: current_job() answers only inside a running task"
        )


class RunningJob(Protocol):
    """What the worker knows about an attempt; `deadline_ms` is wall ms, None without a time limit."""

    id: str
    attempt: int
    record: Record
    past: Past
    deadline_ms: int | None
    checkpoint: bytes
    cancelled: bool

    def note_progress(self, data: bytes) -> None:
        """Take JSON to be stored as the job's progress."""

    def note_checkpoint(self, data: bytes) -> None:
        """Take JSON that the next attempt is to start from."""


running: ContextVar[RunningJob] = ContextVar("redjob_running")


def current_job() -> JobContext:
    """Return the job that the calling code runs for. Raises NoCurrentJob outside of one."""
    try:
        return JobContext(running.get())
    except LookupError:
        raise NoCurrentJob from None


class JobContext:
    """The job as its own task sees it."""

    __slots__ = ("_job",)

    def __init__(self, job: RunningJob) -> None:
        self._job = job

    @property
    def id(self) -> str:
        """The job's id."""
        return self._job.id

    @property
    def attempt(self) -> int:
        """Which start of the job this is, from 1; it rises also after a crash or a hand-back."""
        return self._job.attempt

    @property
    def task(self) -> str:
        """The task's name."""
        return self._job.record.task

    @property
    def queue(self) -> str:
        """The queue that the job was enqueued to."""
        return self._job.record.queue

    @property
    def tenant(self) -> str:
        """The tenant that the job was enqueued for."""
        return self._job.record.tenant

    @property
    def idempotency_key(self) -> str:
        """What to hand to other systems so that a second start does nothing twice.

        The key that the job was enqueued with, else its id: the same in every attempt.
        """
        return self._job.record.options.key or self._job.id

    @property
    def deadline(self) -> datetime | None:
        """When this attempt runs out of time (UTC), None without `timeout_s`."""
        if self._job.deadline_ms is None:
            return None
        return _EPOCH + timedelta(milliseconds=self._job.deadline_ms)

    @property
    def cancelled(self) -> bool:
        """Whether this attempt is to stop: cancelled, out of time, its lease lost, or worker shutdown.

        An async task is cancelled as well; a task in a thread has to look here from time to time and
        may raise JobCancelled to stop.
        """
        return self._job.cancelled

    @property
    def last_checkpoint(self) -> Any:  # noqa: ANN401 - JSON, as the task gave it
        """The last value given to `checkpoint`, by this attempt or an earlier one, else None."""
        stored = self._job.checkpoint or bytes(self._job.past.checkpoint)
        return msgspec.json.decode(stored) if stored else None

    def progress(self, value: object) -> None:
        """Show a value (JSON, ≤ 256 KiB) as the job's progress; of quick ones the last is stored.

        Raises InvalidArgument.
        """
        self._job.note_progress(_to_json("progress", value))

    def checkpoint(self, value: object) -> None:
        """Keep a value (JSON, ≤ 256 KiB) for the next attempt; it is stored soon after, not at once.

        Raises InvalidArgument.
        """
        self._job.note_checkpoint(_to_json("checkpoint", value))


def _to_json(field: str, value: object) -> bytes:
    try:
        data = _encode(value)
    except Exception as exc:  # TypeError, OverflowError, RecursionError: whatever the value does
        raise InvalidArgument(
            field, f"is not JSON ({exc})", "pass numbers, text, lists or dicts"
        ) from exc
    if len(data) > _LIMITS.payload_bytes:
        raise InvalidArgument(
            field,
            f"has {len(data)} bytes, more than {_LIMITS.payload_bytes}",
            "store a reference instead",
        )
    return data
