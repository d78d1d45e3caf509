"""The asyncio client: `redjob.client` with await; what is sent and what it means is shared."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from redjob import change, lookup
from redjob.batches import Accepted, Packer, Turns, enqueue_all
from redjob.calls.call import Call
from redjob.client import checked, store_settings
from redjob.clock import Clock, SystemClock
from redjob.config import DEFAULT_NAMESPACE, DEFAULT_URL
from redjob.errors import NotReplicated, RedjobError, ResultTimeout, StoreUnavailable
from redjob.ids import slot_of
from redjob.job import AsyncJob, EnqueueResult
from redjob.names import check_name
from redjob.partitions import validate_partitions
from redjob.steps import Ahead, Reply
from redjob.store.aio import AsyncStore
from redjob.store.settings import DEADLINE_S
from redjob.submit import (
    Draft,
    EnqueueOptions,
    JobSpec,
    Submitter,
    draft_of,
    patience_with,
    was_created,
    with_job,
)
from redjob.validate import Ack, ack_of, delay_ms_of, wall_ms_of
from redjob.waiting import LOOK_EVERY_S, result_of, timeout_of
from redjob.watch import DoneWatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime, timedelta
    from types import TracebackType

    from redjob.change import CancelResult
    from redjob.model import JobInfo, JobState
    from redjob.steps import Step, Steps

T = TypeVar("T")


class AsyncClient:
    """Enqueues and manages jobs of any task by name, from one event loop.

    The arguments are those of `Client`; so are the methods and what they raise.
    """

    def __init__(
        self,
        redis: object = DEFAULT_URL,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        partitions: int | None = None,
        deadline_s: float = DEADLINE_S,
        ack: Ack = "memory",
        clock: Clock | None = None,
    ) -> None:
        if partitions is not None:
            validate_partitions(partitions)
        self._clock = clock or SystemClock()
        self._store = AsyncStore(
            store_settings(redis, deadline_s),
            check_name("namespace", namespace),
            partitions=partitions,
            clock=self._clock,
        )
        self._submitter = Submitter(namespace, self._clock, ack=ack)
        self._turns = Turns(random.Random())
        self._watch = DoneWatch(self._store)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def abandon(self) -> None:
        """Close the sockets of a client whose event loop has ended without `aclose`."""
        self._store.abandon()

    async def aclose(self) -> None:
        """Close the connections; a later call opens new ones."""
        await self._watch.aclose()
        await self._store.aclose()

    async def enqueue(
        self,
        task: str,
        payload: Mapping[str, Any] | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> AsyncJob:
        """Accept a job that is due at once. As `Client.enqueue`."""
        return await self.submit(draft_of(task, payload, options))

    async def enqueue_at(
        self,
        when: datetime,
        task: str,
        payload: Mapping[str, Any] | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> AsyncJob:
        """Accept a job for a moment (with a time zone). As `Client.enqueue_at`."""
        run_at_ms = wall_ms_of("when", when)
        return await self.submit(draft_of(task, payload, options)._replace(run_at_ms=run_at_ms))

    async def enqueue_in(
        self,
        delay: timedelta | float,
        task: str,
        payload: Mapping[str, Any] | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> AsyncJob:
        """Accept a job that is due after a delay (seconds or timedelta). As `Client.enqueue_in`."""
        delay_ms = delay_ms_of("delay", delay)
        return await self.submit(draft_of(task, payload, options)._replace(delay_ms=delay_ms))

    async def enqueue_many(self, jobs: Iterable[JobSpec]) -> list[EnqueueResult[AsyncJob]]:
        """Accept many jobs in few calls, each item answered by itself. As `Client.enqueue_many`."""
        return await self.submit_many([checked(spec) for spec in jobs])

    def job(self, job_id: str) -> AsyncJob:
        """Return a handle of a job, without asking whether there is one. Raises InvalidArgument."""
        slot_of(job_id)
        return AsyncJob(self, job_id)

    async def state(self, job_id: str) -> JobState:
        """Return the state of a job. Raises JobNotFound, InvalidArgument."""
        return (await self.info(job_id)).state

    async def info(self, job_id: str, *, queue: str = "") -> JobInfo:
        """Return all that is known of a job. As `Client.info`."""
        return await self._run(lookup.info(await self._store.open(), job_id, queue))

    async def result(self, job_id: str, timeout_s: float = 10.0, *, queue: str = "") -> Any:
        """Wait until a job has ended and return its result. As `Client.result`."""
        limit = self._clock.monotonic() + timeout_of(timeout_s)
        slot_of(job_id)
        keys = await self._store.open()
        async with self._watch.job(keys.of_job(job_id), job_id) as announced:
            while True:
                announced.clear()
                left_s = max(0.0, limit - self._clock.monotonic())
                info = await self._run(lookup.info(keys, job_id, queue), deadline_s=left_s)
                if info.state.terminal:
                    return result_of(info)
                left_s = limit - self._clock.monotonic()
                if left_s <= 0:
                    raise ResultTimeout(job_id, timeout_s)
                queue = info.queue or queue
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left_s, LOOK_EVERY_S)):
                        await announced.wait()

    async def cancel(self, job_id: str, *, queue: str = "", ack: Ack | None = None) -> CancelResult:
        """Cancel a job; a running one is asked to stop. As `Client.cancel`."""
        keys = await self._store.open()
        replicas = self._replicas(ack)
        return await self._run(change.cancel(keys, job_id, queue, self._store.now_ms(), replicas))

    async def reschedule(
        self, job_id: str, when: datetime, *, queue: str = "", ack: Ack | None = None
    ) -> None:
        """Give a SCHEDULED job another time. As `Client.reschedule`."""
        run_at_ms = wall_ms_of("when", when)
        keys = await self._store.open()
        replicas = self._replicas(ack)
        await self._run(
            change.reschedule(keys, job_id, queue, run_at_ms, self._store.now_ms(), replicas)
        )

    async def replay(self, job_id: str, *, queue: str = "") -> None:
        """Run a FAILED job again, its counts from 0. As `Client.replay`."""
        await self._run(change.replay(await self._store.open(), job_id, queue))

    async def submit(self, draft: Draft) -> AsyncJob:
        """Enqueue what is checked already: the way of the task-bound API. As `enqueue`."""
        store = self._store
        keys = await store.open()  # first: only a connection knows the server's clock
        job, call = self._submitter.call(keys, draft, store.now_ms())
        patience_s = patience_with(draft, one_server=store.is_one_server)
        try:
            reply = await store.call(call, deadline_s=patience_s)
        except NotReplicated as error:
            raise error.of(job.id) from error
        except StoreUnavailable as error:
            if patience_s is None:
                raise with_job(error, job.id) from error
            going_on = self._submitter.go_on(keys, draft, store.now_ms(), job, call, error)
            job, call, reply = await self._run(going_on)
        created = was_created(draft, job, reply.codes, reply.found.get(0), again=call.repeated)
        return AsyncJob(self, job.id, draft.plan.queue, created=created)

    async def submit_many(self, drafts: list[Draft | RedjobError]) -> list[EnqueueResult[AsyncJob]]:
        """Enqueue what is checked already; an error among it is its own answer. As `enqueue_many`."""
        keys = await self._store.open()
        store = self._store
        packer = Packer(
            keys, self._submitter, store.now_ms(), self._turns, one_server=store.is_one_server
        )
        return [
            EnqueueResult(AsyncJob(self, verdict.id, verdict.queue, created=verdict.created))
            if isinstance(verdict, Accepted)
            else EnqueueResult[AsyncJob](None, verdict)
            for verdict in await self._run(enqueue_all(packer, drafts))
        ]

    def _replicas(self, ack: Ack | None) -> int:
        return self._submitter.replicas_for(None if ack is None else ack_of(ack))

    async def _run(self, steps: Steps[T], *, deadline_s: float | None = None) -> T:
        """Drive steps: send what they yield, and give them the reply or the error."""
        ahead: deque[asyncio.Task[Any]] = deque()
        try:
            step = next(steps)
            while True:
                try:
                    reply = await self._take_step(step, ahead, deadline_s)
                except RedjobError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(reply)
        except StopIteration as stop:
            value: T = stop.value
            return value
        finally:
            for task in ahead:
                task.cancel()

    async def _take_step(
        self, step: Step, ahead: deque[asyncio.Task[Any]], deadline_s: float | None
    ) -> object:
        match step:
            case Ahead(call, patience_s):
                calling = self._store.call(call, deadline_s=patience_s)
                ahead.append(asyncio.create_task(calling))
                return None
            case Reply():  # its patience began when it was sent
                return await ahead.popleft()
            case Call():
                return await self._store.call(step, deadline_s=deadline_s)
            case _:
                return await self._store.query(step, deadline_s=deadline_s)
