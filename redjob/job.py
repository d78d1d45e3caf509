"""Handles of one job: what `enqueue` returns, sync and async. All they do is ask their client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from datetime import datetime

    from redjob.aclient import AsyncClient
    from redjob.change import CancelResult
    from redjob.client import Client
    from redjob.errors import RedjobError
    from redjob.model import JobInfo, JobState

J = TypeVar("J")


class EnqueueResult(NamedTuple, Generic[J]):
    """One item's answer of `enqueue_many`: the job, or the error that kept it out."""

    job: J | None
    error: RedjobError | None = None


class Job:
    """A job of a `Client`.

    `created` is False when an idempotency key found an older job. Every method asks Redis, and
    raises StoreUnavailable when it does not answer.
    """

    __slots__ = ("_client", "_queue", "created", "id")

    def __init__(
        self, client: Client, job_id: str, queue: str = "", *, created: bool = False
    ) -> None:
        self.id = job_id
        self.created = created
        self._client = client
        self._queue = queue  # spares a look-up; "" where it is not known

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def state(self) -> JobState:
        """Return the state. Raises JobNotFound."""
        return self.info().state

    def info(self) -> JobInfo:
        """Return all that is known. Raises JobNotFound."""
        return self._client.info(self.id, queue=self._queue)

    def result(self, timeout_s: float = 10.0) -> Any:
        """Wait for the end and return the result, decoded from JSON.

        Raises JobFailed (dead, cancelled or expired), ResultTimeout, JobNotFound.
        """
        return self._client.result(self.id, timeout_s, queue=self._queue)

    def cancel(self) -> CancelResult:
        """Cancel, or ask the running attempt to stop. Raises JobNotFound, WrongState."""
        return self._client.cancel(self.id, queue=self._queue)

    def reschedule(self, when: datetime) -> None:
        """Give a SCHEDULED job another time. Raises JobNotFound, WrongState, Conflict."""
        self._client.reschedule(self.id, when, queue=self._queue)

    def replay(self) -> None:
        """Run a FAILED job again. Raises JobNotFound, WrongState, Conflict."""
        self._client.replay(self.id, queue=self._queue)


class AsyncJob:
    """A job of an `AsyncClient`: `Job` with await."""

    __slots__ = ("_client", "_queue", "created", "id")

    def __init__(
        self, client: AsyncClient, job_id: str, queue: str = "", *, created: bool = False
    ) -> None:
        self.id = job_id
        self.created = created
        self._client = client
        self._queue = queue

    def __repr__(self) -> str:
        return f"AsyncJob({self.id!r})"

    async def state(self) -> JobState:
        """Return the state. Raises JobNotFound."""
        return (await self.info()).state

    async def info(self) -> JobInfo:
        """Return all that is known. Raises JobNotFound."""
        return await self._client.info(self.id, queue=self._queue)

    async def result(self, timeout_s: float = 10.0) -> Any:
        """Wait for the end and return the result, decoded from JSON.

        Raises JobFailed (dead, cancelled or expired), ResultTimeout, JobNotFound.
        """
        return await self._client.result(self.id, timeout_s, queue=self._queue)

    async def cancel(self) -> CancelResult:
        """Cancel, or ask the running attempt to stop. Raises JobNotFound, WrongState."""
        return await self._client.cancel(self.id, queue=self._queue)

    async def reschedule(self, when: datetime) -> None:
        """Give a SCHEDULED job another time. Raises JobNotFound, WrongState, Conflict."""
        await self._client.reschedule(self.id, when, queue=self._queue)

    async def replay(self) -> None:
        """Run a FAILED job again. Raises JobNotFound, WrongState, Conflict."""
        await self._client.replay(self.id, queue=self._queue)
