"""One start of a job by this worker, from take to the answer of finish."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum

from redjob.keys import PartitionKeys
from redjob.model import Past, Record


class Cause(StrEnum):
    """Why an attempt was told to stop."""

    CANCELLED = "cancelled"
    LOST = "lost"
    TIMEOUT = "timeout"
    HANDED_BACK = "handed_back"


class Attempt:
    """One start of a job; what a task sees of it is `redjob.context.JobContext`.

    Fields belong to the event loop, except where the heartbeat thread or the task's own thread
    writes: `beat_s` and `sent` are the heartbeat's alone, `progress`, `checkpoint` and `changes` the
    task's. `taken_s` and `beat_s` are monotonic seconds before the request that set the lease.
    """

    __slots__ = (
        "attempt",
        "beat_s",
        "began",
        "cancelled",
        "cause",
        "changed",
        "changes",
        "checkpoint",
        "deadline_ms",
        "ended",
        "head",
        "id",
        "lease_told",
        "part",
        "past",
        "progress",
        "record",
        "sent",
        "task",
    )

    def __init__(
        self,
        job_id: str,
        attempt: int,
        part: PartitionKeys,
        head: bytes,
        record: Record,
        past: Past,
    ) -> None:
        self.id = job_id
        self.attempt = attempt
        self.part = part
        self.head = head
        self.record = record
        self.past = past
        self.beat_s = 0.0
        self.deadline_ms: int | None = None
        self.task: asyncio.Task[None] | None = None  # of an async task, once it is started
        self.cause: Cause | None = None
        self.began = False  # the task's own code has begun
        self.ended = False  # its end is with the reporter, or it has none
        self.cancelled = False
        self.lease_told = False  # that it lost its lease is in the log already
        self.progress = b""
        self.checkpoint = b""
        self.changes = 0
        self.sent = 0
        self.changed: Callable[[], None] | None = None

    def note_progress(self, data: bytes) -> None:
        """Take JSON to be stored as the job's progress."""
        self.progress = data
        self._note()

    def note_checkpoint(self, data: bytes) -> None:
        """Take JSON that the next attempt is to start from."""
        self.checkpoint = data
        self._note()

    def _note(self) -> None:
        # Value first, count second: whoever has read the count has not missed the value.
        self.changes += 1
        if self.changed is not None:
            self.changed()
