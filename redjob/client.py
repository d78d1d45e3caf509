"""The blocking client: sends what `redjob.submit`, `lookup` and `change` build, and waits.

First in the chain of a job.  Threads may share a client, and a forked child may go on using it.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from redjob import change, lookup
from redjob.batches import Accepted, Packer, Turns, enqueue_all
from redjob.calls.call import Call
from redjob.clock import Clock, SystemClock
from redjob.config import DEFAULT_NAMESPACE, DEFAULT_URL
from redjob.errors import (
    InvalidArgument,
    NotReplicated,
    RedjobError,
    ResultTimeout,
    StoreFull,
    StoreUnavailable,
)
from redjob.ids import slot_of
from redjob.job import EnqueueResult, Job
from redjob.names import check_name
from redjob.partitions import validate_partitions
from redjob.steps import Ahead, Reply
from redjob.store.settings import (
    DEADLINE_S,
    StoreSettings,
    settings_from_client,
    settings_from_url,
)
from redjob.store.sync import Sent, SyncStore
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
from redjob.validate import Ack, ack_of, delay_ms_of, seconds_of, wall_ms_of
from redjob.waiting import LOOK_EVERY_S, ended, listen, read_done, result_of, timeout_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime, timedelta
    from types import TracebackType

    from redjob.change import CancelResult
    from redjob.model import JobInfo, JobState
    from redjob.steps import Step, Steps

T = TypeVar("T")


def store_settings(redis: object, deadline_s: float = DEADLINE_S) -> StoreSettings:
    """Read a URL, or how a redis-py client connects. Raises InvalidArgument."""
    if isinstance(redis, StoreSettings):
        return redis
    deadline_s = seconds_of("deadline_s", deadline_s)
    if isinstance(redis, str):
        return settings_from_url(redis, deadline_s=deadline_s)
    return settings_from_client(redis, deadline_s=deadline_s)


class Client:
    """Enqueues and manages jobs of any task by name; needs no task code.

    `redis` is a URL or a redis-py client whose settings are taken (its own connections are not
    used); every call ends after `deadline_s` at the latest, with StoreUnavailable. `ack` says when
    enqueue, cancel and reschedule return: "memory" once the server has it, "replicated" once a
    replica has it too (else NotReplicated); each call may ask for another one.
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
        self._store = SyncStore(
            store_settings(redis, deadline_s),
            check_name("namespace", namespace),
            partitions=partitions,
            clock=self._clock,
        )
        self._submitter = Submitter(namespace, self._clock, ack=ack)
        self._turns = Turns(random.Random())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        self._store.close()

    def enqueue(
        self,
        task: str,
        payload: Mapping[str, Any] | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> Job:
        """Accept a job that is due at once.

        Raises InvalidArgument, IdempotencyConflict, NotReady, StoreFull, Rebuilding, and
        StoreUnavailable with the job's id.
        """
        return self.submit(draft_of(task, payload, options))

    def enqueue_at(
        self,
        when: datetime,
        task: str,
        payload: Mapping[str, Any] | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> Job:
        """Accept a job for a moment (with a time zone); a past one is due at once. As `enqueue`."""
        run_at_ms = wall_ms_of("when", when)
        return self.submit(draft_of(task, payload, options)._replace(run_at_ms=run_at_ms))

    def enqueue_in(
        self,
        delay: timedelta | float,
        task: str,
        payload: Mapping[str, Any] | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> Job:
        """Accept a job that is due after a delay (seconds or timedelta) on Redis' clock. As `enqueue`."""
        delay_ms = delay_ms_of("delay", delay)
        return self.submit(draft_of(task, payload, options)._replace(delay_ms=delay_ms))

    def enqueue_many(self, jobs: Iterable[JobSpec]) -> list[EnqueueResult[Job]]:
        """Accept many jobs in few calls; each item is answered by itself, in its place.

        Raises only what concerns all of them: NotReady, PartitionMismatch, StoreUnavailable.
        """
        return self.submit_many([checked(spec) for spec in jobs])

    def job(self, job_id: str) -> Job:
        """Return a handle of a job, without asking whether there is one. Raises InvalidArgument."""
        slot_of(job_id)
        return Job(self, job_id)

    def state(self, job_id: str) -> JobState:
        """Return the state of a job. Raises JobNotFound, InvalidArgument."""
        return self.info(job_id).state

    def info(self, job_id: str, *, queue: str = "") -> JobInfo:
        """Return all that is known of a job; its queue, if known, spares a look-up.

        Raises JobNotFound, InvalidArgument.
        """
        return self._run(lookup.info(self._store.keys, job_id, queue))

    def result(self, job_id: str, timeout_s: float = 10.0, *, queue: str = "") -> Any:
        """Wait until a job has ended and return its result, decoded from JSON.

        None if the result's TTL is over. Raises JobFailed (dead, cancelled or expired),
        ResultTimeout, JobNotFound, InvalidArgument.
        """
        limit = self._clock.monotonic() + timeout_of(timeout_s)
        part = self._store.keys.of_slot(slot_of(job_id))
        while True:
            left_s = max(0.0, limit - self._clock.monotonic())
            try:
                position = self._store.query(listen(part), deadline_s=left_s)
            except StoreFull:  # nobody can be told to announce ends: look again and again
                position = ""
            info = self._run(lookup.info(self._store.keys, job_id, queue), deadline_s=left_s)
            if info.state.terminal:
                return result_of(info)
            now = self._clock.monotonic()
            if now >= limit:
                raise ResultTimeout(job_id, timeout_s)
            queue = info.queue or queue
            self._await_end(job_id, position, min(limit, now + LOOK_EVERY_S))

    def cancel(self, job_id: str, *, queue: str = "", ack: Ack | None = None) -> CancelResult:
        """Cancel a job; a running one is asked to stop. A job cancelled already is no error.

        Raises JobNotFound, WrongState, InvalidArgument, NotReplicated.
        """
        keys = self._store.keys
        replicas = self._replicas(ack)
        return self._run(change.cancel(keys, job_id, queue, self._store.now_ms(), replicas))

    def reschedule(
        self, job_id: str, when: datetime, *, queue: str = "", ack: Ack | None = None
    ) -> None:
        """Give a SCHEDULED job another time. Raises JobNotFound, WrongState, Conflict, InvalidArgument."""
        run_at_ms = wall_ms_of("when", when)
        keys = self._store.keys
        replicas = self._replicas(ack)
        self._run(change.reschedule(keys, job_id, queue, run_at_ms, self._store.now_ms(), replicas))

    def replay(self, job_id: str, *, queue: str = "") -> None:
        """Run a FAILED job again, its counts from 0. Raises JobNotFound, WrongState, Conflict."""
        self._run(change.replay(self._store.keys, job_id, queue))

    def submit(self, draft: Draft) -> Job:
        """Enqueue what is checked already: the way of the task-bound API. As `enqueue`."""
        store = self._store
        keys = store.keys  # first: only a connection knows the server's clock
        job, call = self._submitter.call(keys, draft, store.now_ms())
        patience_s = patience_with(draft, one_server=store.is_one_server)
        try:
            reply = store.call(call, deadline_s=patience_s)
        except NotReplicated as error:
            raise error.of(job.id) from error
        except StoreUnavailable as error:
            if patience_s is None:
                raise with_job(error, job.id) from error
            going_on = self._submitter.go_on(keys, draft, store.now_ms(), job, call, error)
            job, call, reply = self._run(going_on)
        created = was_created(draft, job, reply.codes, reply.found.get(0), again=call.repeated)
        return Job(self, job.id, draft.plan.queue, created=created)

    def submit_many(self, drafts: list[Draft | RedjobError]) -> list[EnqueueResult[Job]]:
        """Enqueue what is checked already; an error among it is its own answer. As `enqueue_many`."""
        keys = self._store.keys
        store = self._store
        packer = Packer(
            keys, self._submitter, store.now_ms(), self._turns, one_server=store.is_one_server
        )
        return [
            EnqueueResult(Job(self, verdict.id, verdict.queue, created=verdict.created))
            if isinstance(verdict, Accepted)
            else EnqueueResult[Job](None, verdict)
            for verdict in self._run(enqueue_all(packer, drafts))
        ]

    def _replicas(self, ack: Ack | None) -> int:
        return self._submitter.replicas_for(None if ack is None else ack_of(ack))

    def _run(self, steps: Steps[T], *, deadline_s: float | None = None) -> T:
        """Drive steps: send what they yield, and give them the reply or the error."""
        ahead: deque[tuple[Ahead, Sent | None]] = deque()
        try:
            step = next(steps)
            while True:
                try:
                    reply = self._take_step(step, ahead, deadline_s)
                except RedjobError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(reply)
        except StopIteration as stop:
            value: T = stop.value
            return value

    def _take_step(
        self,
        step: Step,
        ahead: deque[tuple[Ahead, Sent | None]],
        deadline_s: float | None,
    ) -> object:
        match step:
            case Ahead(call):
                ahead.append((step, self._store.send(call)))
                return None
            case Reply(hurried):
                oldest, sent = ahead.popleft()
                patience_s = 0.0 if hurried else oldest.patience_s
                return self._store.call(oldest.call, deadline_s=patience_s, sent=sent)
            case Call():
                return self._store.call(step, deadline_s=deadline_s)
            case _:
                return self._store.query(step, deadline_s=deadline_s)

    def _await_end(self, job_id: str, position: str, limit: float) -> None:
        """Block until the job's end is announced after `position`, or until `limit` (monotonic s).

        A while without a position: no announcement can be counted on.
        """
        part = self._store.keys.of_job(job_id)
        if not position:
            self._clock.sleep(max(0.0, min(limit - self._clock.monotonic(), LOOK_EVERY_S / 4)))
            return
        while (left_s := limit - self._clock.monotonic()) > 0:
            try:
                raw = self._store.block(part, read_done(part, position, left_s), left_s)
            except RedjobError:
                # The next look goes by a call, which has its own patience with a lost server.
                self._clock.sleep(min(left_s, LOOK_EVERY_S / 4))
                return
            position, ids = ended(raw, position)
            if job_id in ids:
                return


def checked(spec: object) -> Draft | RedjobError:
    """Return the draft of a spec, or the error that it has."""
    if not isinstance(spec, JobSpec):
        return InvalidArgument("jobs", f"holds a {type(spec).__name__}", "pass JobSpec(...) items")
    try:
        return spec.draft()
    except RedjobError as error:
        return error
