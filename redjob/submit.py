"""From what a caller asks to the enqueue call that is sent, and from its reply to the answer.

Pure, and first in the path of a job: plan (what all jobs of one task and set of options have in
common, checked once) → draft (one job, checked) → record, id and call → reply.  Both clients share
every line of it; many jobs at once are in `redjob.batches`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack, cast, overload

import msgspec

from redjob.calls.jobs import Enqueued, NewJob, enqueue
from redjob.codec import decode_record, decode_stub, encode_record, home_of, is_stub
from redjob.errors import (
    IdempotencyConflict,
    InvalidArgument,
    NotReplicated,
    RedjobError,
    ScriptFailed,
    StoreUnavailable,
)
from redjob.ids import JobIds, keyed_job_id, new_token
from redjob.model import DEFAULT_PRIORITY, DEFAULT_TENANT, Options, Record
from redjob.names import check_name
from redjob.payload import body_hash, encode_payload
from redjob.retry import Retry
from redjob.steps import Ahead, Reply
from redjob.validate import (
    REPLICAS,
    Ack,
    ack_of,
    check_horizon,
    check_key,
    count_of,
    delay_ms_of,
    priority_of,
    seconds_of,
    wall_ms_of,
)

if TYPE_CHECKING:
    from redjob.calls.call import Call
    from redjob.clock import Clock
    from redjob.keys import Keyspace
    from redjob.steps import Steps

DEFAULT_QUEUE = "default"
_NOTHING = msgspec.Raw(b"{}")
# The very object that is Record's default: msgspec leaves it out by identity, and a job that asks
# for nothing special stores no options.
_PLAIN = Record(home="", created=0, task="", queue="", payload=_NOTHING).options


class PlanOptions(TypedDict, total=False):
    """Options that many jobs share. `_s` are seconds; `expires_in` counts from the due time."""

    queue: str
    tenant: str
    priority: int | str
    retry: Retry | None
    timeout_s: float | None
    max_crashes: int
    result_ttl_s: float
    key_window_s: float
    expires_in: timedelta | float | None


class EnqueueOptions(PlanOptions, total=False):
    """All options of a job: those of `PlanOptions`, and those that are its own."""

    idempotency_key: str | None
    expires_at: datetime | None
    ack: Ack | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What jobs of one task and set of options have in common, checked."""

    task: str
    queue: str
    tenant: str
    priority: int
    options: Options
    expires_in_ms: int


def plan_of(task: str, **options: Unpack[PlanOptions]) -> Plan:
    """Check a task's name and options once; the same ones again cost a look-up.

    Raises InvalidArgument, and TypeError for an option that does not exist.
    """
    try:
        return _cached_plan(task, **options)
    except TypeError:  # an option that cannot be hashed is wrong as well, and is told as such
        return _make_plan(task, **options)


def _make_plan(  # noqa: PLR0913 - the options of a job, keyword-only
    task: str,
    *,
    queue: str = DEFAULT_QUEUE,
    tenant: str = DEFAULT_TENANT,
    priority: int | str = DEFAULT_PRIORITY,
    retry: Retry | None = None,
    timeout_s: float | None = None,
    max_crashes: int = 3,
    result_ttl_s: float = 3600.0,
    key_window_s: float = 86400.0,
    expires_in: timedelta | float | None = None,
) -> Plan:
    rule = Retry() if retry is None else retry
    if not isinstance(rule, Retry):  # pyright: ignore[reportUnnecessaryIsInstance] - from users
        raise InvalidArgument("retry", f"is a {type(rule).__name__}", "pass redjob.Retry(...)")
    options = Options(
        max_attempts=int(rule.max_attempts),
        base_s=float(rule.base_s),
        factor=float(rule.factor),
        cap_s=float(rule.cap_s),
        jitter=rule.jitter,
        timeout_s=None if timeout_s is None else seconds_of("timeout_s", timeout_s),
        max_crashes=count_of("max_crashes", max_crashes),
        result_ttl_s=seconds_of("result_ttl_s", result_ttl_s, zero=True),
        key_window_s=seconds_of("key_window_s", key_window_s),
    )
    return Plan(
        check_name("task", task),
        check_name("queue", queue),
        check_name("tenant", tenant),
        priority_of(priority),
        _PLAIN if options == _PLAIN else options,
        0 if expires_in is None else delay_ms_of("expires_in", expires_in),
    )


# typed: 1, 1.0 and True are one key otherwise, and a priority of True would pass where 1 has passed.
_cached_plan = lru_cache(maxsize=1024, typed=True)(_make_plan)


_OPTION_NAMES = EnqueueOptions.__optional_keys__


class Draft(NamedTuple):
    """A job that was checked as far as it can be without the server's clock.

    Due at `run_at_ms` (wall), or after `delay_ms`, or at once where both are 0.
    """

    plan: Plan
    payload: bytes
    key: str | None = None
    expires_at_ms: int = 0
    run_at_ms: int = 0
    delay_ms: int = 0
    ack: Ack | None = None


class JobSpec:
    """One job for `enqueue_many` of a thin client: as `enqueue` takes it, with `run_at` or `run_in`.

    Values are not checked before it is enqueued, so that one bad item does not harm the others.
    """

    __slots__ = ("options", "payload", "run_at", "run_in", "task")

    def __init__(
        self,
        task: str,
        payload: Mapping[str, Any] | None = None,
        *,
        run_at: datetime | None = None,
        run_in: timedelta | float | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> None:
        unknown = options.keys() - _OPTION_NAMES
        if unknown:
            raise TypeError(f"JobSpec has no option {', '.join(sorted(unknown))}")
        self.task = task
        self.payload = payload
        self.run_at = run_at
        self.run_in = run_in
        self.options = options

    def draft(self) -> Draft:
        """Check it. Raises InvalidArgument."""
        if self.run_at is not None and self.run_in is not None:
            raise InvalidArgument("run_in", "is given beside run_at", "pass one of them")
        draft = draft_of(self.task, self.payload, self.options)
        if self.run_at is not None:
            return draft._replace(run_at_ms=wall_ms_of("run_at", self.run_at))
        if self.run_in is not None:
            return draft._replace(delay_ms=delay_ms_of("run_in", self.run_in))
        return draft


def draft_of(task: str, payload: Mapping[str, Any] | None, options: EnqueueOptions) -> Draft:
    """Check a job that is due at once. Raises InvalidArgument."""
    doc = encode_payload({} if payload is None else payload)
    if not options:
        return Draft(plan_of(task), doc)
    shared, key, expires_at_ms, ack = own_options(options)
    return Draft(plan_of(task, **shared), doc, key, expires_at_ms, ack=ack)


def own_options(options: EnqueueOptions) -> tuple[PlanOptions, str | None, int, Ack | None]:
    """Split options into those of the plan, the key, expires_at (wall ms, 0 for none) and ack.

    Raises InvalidArgument.
    """
    shared = dict(options)
    key, expires_at = shared.pop("idempotency_key", None), shared.pop("expires_at", None)
    ack = shared.pop("ack", None)
    return (
        cast("PlanOptions", shared),
        None if key is None else check_key(key),
        0 if expires_at is None else wall_ms_of("expires_at", expires_at),
        None if ack is None else ack_of(ack),
    )


PATIENCE_S = 0.1
REDRAWS = 5  # then the last one has the usual patience


class Submitter:
    """Makes ids and calls for the drafts of one namespace; threads may share it."""

    def __init__(self, namespace: str, clock: Clock, *, ack: Ack = "memory") -> None:
        self._namespace = namespace
        self._ack: Ack = ack_of(ack)
        self._ids = JobIds(clock)

    def job_id(self, draft: Draft, slot: int | None = None) -> str:
        """Return the id of a draft: of its key, else a new one, in `slot` if that is given."""
        if draft.key is None:
            return self._ids.new_job_id(slot)
        return keyed_job_id(self._namespace, draft.plan.tenant, draft.key)

    def call(self, keys: Keyspace, draft: Draft, now_ms: int) -> tuple[NewJob, Call[Enqueued]]:
        """Return one job and the call that enqueues it. Raises InvalidArgument."""
        plan = draft.plan
        job = NewJob(self.job_id(draft), *record_of(draft, now_ms))
        part = keys.of_job(job.id)
        call = enqueue(part, plan.queue, plan.tenant, plan.priority, (job,), new_token())
        call.replicas = self.replicas_for(draft.ack)
        return job, call

    def replicas_for(self, ack: Ack | None) -> int:
        """Return how many replicas must have what is asked for with an ack level (None: the usual)."""
        return REPLICAS[self._ack if ack is None else ack]

    def go_on(
        self,
        keys: Keyspace,
        draft: Draft,
        now_ms: int,
        job: NewJob,
        call: Call[Enqueued],
        error: StoreUnavailable,
    ) -> Steps[tuple[NewJob, Call[Enqueued], Enqueued]]:
        """Go on with a call that had no answer: elsewhere if it was refused, else with the same id.

        Raises StoreUnavailable, with the id of the last job that was tried.
        """
        for redraws_left in range(REDRAWS, -1, -1):
            patience_s = PATIENCE_S if redraws_left else None
            if error.outcome == "refused" and not call.repeated:
                job, call = self.call(keys, draft, now_ms)
            else:  # it may have got through: from here on only its own partition can tell
                call.args[call.again_at] = "1"
                patience_s = None
            yield Ahead(call, patience_s)
            try:
                reply: Enqueued = yield Reply()
            except StoreUnavailable as again:
                error = again
                if patience_s is None:
                    break
                continue
            return job, call, reply
        raise with_job(error, job.id) from error


def patience_with(draft: Draft, *, one_server: bool) -> float | None:
    """Return for how many seconds a partition may refuse a draft before another one is drawn.

    None: the draft belongs where its key puts it, or all partitions are on the one server.
    """
    return None if one_server or draft.key is not None else PATIENCE_S


def record_of(draft: Draft, now_ms: int) -> tuple[int, bytes]:
    """Return the due time (wall ms, 0 for at once) and the record; `now_ms` is the server's clock.

    Raises InvalidArgument for times beyond the horizon, or an end before the beginning.
    """
    plan, run_at_ms = draft.plan, draft.run_at_ms
    if draft.delay_ms:
        run_at_ms = now_ms + draft.delay_ms
    elif run_at_ms:
        check_horizon("run_at", run_at_ms, now_ms)
    due_ms = run_at_ms or now_ms
    options = plan.options
    if draft.key is not None or draft.expires_at_ms or plan.expires_in_ms:
        options = _own_options(draft, due_ms, run_at_ms)
    record = Record(
        home=home_of(due_ms),
        created=now_ms,
        run_at=run_at_ms,
        task=plan.task,
        queue=plan.queue,
        tenant=plan.tenant,
        priority=plan.priority,
        payload=msgspec.Raw(draft.payload),
        options=options,
        body_hash=_body_hash(draft) if draft.key is not None else None,
    )
    return run_at_ms, encode_record(record)


def _own_options(draft: Draft, due_ms: int, run_at_ms: int) -> Options:
    expires_at_ms = draft.expires_at_ms
    if expires_at_ms:
        check_horizon("expires_at", expires_at_ms, due_ms)
        # Not compared with now: the repeat of a keyed call may come late and must find its job.
        if run_at_ms and expires_at_ms <= run_at_ms:
            raise InvalidArgument("expires_at", "is not after the due time", "pass a later time")
    elif draft.plan.expires_in_ms:
        expires_at_ms = due_ms + draft.plan.expires_in_ms
    return msgspec.structs.replace(
        draft.plan.options, key=draft.key, expires_at=expires_at_ms or None
    )


def _body_hash(draft: Draft) -> str:
    return body_hash(draft.plan.task, draft.plan.queue, draft.payload)


def was_created(draft: Draft, job: NewJob, code: str, found: bytes | None, *, again: bool) -> bool:
    """Return whether this call created the job, from its letter and what was found under its id.

    False is an older job with the same key and body.  `again` says that an earlier try of the call
    may have got through: what is found may be the work of this very call.
    Raises IdempotencyConflict, ScriptFailed.
    """
    if code == "B":
        raise ScriptFailed("enqueue", f"a damaged key keeps job {job.id} out")
    if code != "E" or draft.key is None:  # a random id can only have been drawn by this call
        return True
    if again and found == job.doc:
        return True
    try:
        known = decode_stub(found or b"") if is_stub(found or b"") else decode_record(found or b"")
    except msgspec.DecodeError as error:
        raise ScriptFailed("enqueue", f"the record of job {job.id} is damaged") from error
    if known.body_hash != _body_hash(draft):
        raise IdempotencyConflict(draft.key, job.id)
    return False


@overload
def with_job(error: StoreUnavailable, job_id: str) -> StoreUnavailable: ...
@overload
def with_job(error: RedjobError, job_id: str) -> RedjobError: ...
def with_job(error: RedjobError, job_id: str) -> RedjobError:
    """Return the error with the id of the job that the call was about, where it is of use."""
    if isinstance(error, StoreUnavailable):
        return StoreUnavailable(error.reason, outcome=error.outcome, job_id=job_id)
    return error.of(job_id) if isinstance(error, NotReplicated) else error
