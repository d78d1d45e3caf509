"""A job in every state: what is told of it, and what cancel, reschedule and replay do with it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from redjob import (
    CancelResult,
    Client,
    Conflict,
    InvalidArgument,
    JobNotFound,
    JobState,
    ScriptFailed,
    WrongState,
)
from redjob.calls import owner, work
from redjob.codec import encode_past
from redjob.ids import keyed_job_id, new_id
from redjob.model import ErrorInfo, Past
from redjob.validate import LIMITS
from tests.support.world import WORKER, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redjob.calls.call import Call
    from tests.support.seed import Job as Seed
    from tests.support.servers import TestServer

pytestmark = pytest.mark.server("valkey", "redis", "cluster")

ERROR = ErrorInfo(type="ValueError", message="no such user \U0001f600", at=5)
NOBODY = new_id(1_790_000_000_000, 77, 5)


@pytest.fixture
def client(world: World, server: TestServer) -> Iterator[Client]:
    with Client(server.url, namespace=world.namespace) as client:
        yield client


def soon() -> datetime:
    return datetime.now(UTC) + timedelta(days=2)


# what is told


def test_a_scheduled_job_tells_when_it_is_due(world: World, client: Client) -> None:
    seed = world.scheduled(in_ms=5000, tenant="acme", priority=2, payload=b'{"a":[1]}')
    info = client.info(seed.id)
    assert info.state is JobState.SCHEDULED
    assert (info.run_at_ms, info.created_ms) == (world.now_ms + 5000, world.now_ms)
    assert (info.task, info.queue, info.tenant, info.priority) == ("task", "q", "acme", 2)
    assert (info.payload, info.attempt, info.held_by, info.ended_ms) == ({"a": [1]}, 0, None, None)


def test_a_dispatched_job_is_held_by_nothing(world: World, client: Client) -> None:
    info = client.info(world.dispatched().id)
    assert (info.state, info.held_by) == (JobState.DISPATCHED, None)
    assert info.run_at_ms == info.created_ms


def test_a_ready_job_is_held_by_the_depth_of_its_stream(world: World, client: Client) -> None:
    info = client.info(world.ready().id)
    assert (info.state, info.held_by) == (JobState.DISPATCHED, "depth")


def test_a_held_job_is_held_by_a_limit(world: World, client: Client) -> None:
    seed = world.ready()
    keys = world.part.queue(seed.queue)
    world.redis.zrem(keys.ready, seed.id)
    world.redis.zadd(keys.held, {seed.id: world.now_ms + 1})
    info = client.info(seed.id)
    assert (info.state, info.held_by) == (JobState.DISPATCHED, "limit")


def test_a_job_in_no_place_is_lost_until_the_sweeper_finds_it(world: World, client: Client) -> None:
    seed = world.dispatched()
    world.redis.hdel(world.part.dispatched, seed.id)
    info = client.info(seed.id)
    assert (info.state, info.held_by) == (JobState.DISPATCHED, "lost")


def test_a_running_job_tells_its_attempt_worker_lease_and_progress(
    world: World, client: Client
) -> None:
    seed = world.running(attempt=3, past=Past(failures=1, crashes=1, last="failed", error=ERROR))
    beat = seed.beat(3, progress=b'{"done":7}')
    world.run(work.heartbeat(world.part, WORKER, [beat], lease_ms=9000, tag=world.tag()))
    info = client.info(seed.id)
    assert (info.state, info.attempt, info.worker) == (JobState.RUNNING, 3, WORKER)
    assert info.lease_until_ms == world.now_ms + 9000
    assert (info.failures, info.crashes, info.error) == (1, 1, ERROR)
    assert info.progress == {"done": 7}


def test_a_retrying_job_tells_how_it_failed(world: World, client: Client) -> None:
    seed = world.retrying(attempt=2, delay_ms=7000)
    info = client.info(seed.id)
    assert (info.state, info.attempt, info.failures) == (JobState.SCHEDULED, 2, 1)
    assert info.run_at_ms == world.now_ms + 7000


def test_a_dead_job_tells_when_and_why(world: World, client: Client) -> None:
    past = Past(failures=5, last="failed", dead="failure", error=ERROR)
    info = client.info(world.dead(past=past).id)
    assert (info.state, info.failures, info.error) == (JobState.FAILED, 5, ERROR)
    assert info.ended_ms == world.now_ms


def test_a_completed_job_is_known_by_its_tombstone(world: World, client: Client) -> None:
    info = client.info(world.ended().id)
    assert (info.state, info.attempt, info.ended_ms) == (JobState.COMPLETED, 1, world.now_ms)
    assert (info.task, info.result) == (None, None)


def test_a_completed_job_is_known_by_its_stub(world: World, client: Client) -> None:
    seed = world.ended(stub=True, key="k")
    world.redis.hdel(world.part.finished, seed.id)
    info = client.info(seed.id)
    assert (info.state, info.created_ms, info.ended_ms) == (JobState.COMPLETED, world.now_ms, 1)


def test_a_completed_job_is_known_by_its_result(world: World, client: Client) -> None:
    seed = world.running()
    world.finish(seed, "C", result_ttl_ms=60_000)
    world.redis.hdel(world.part.finished, seed.id)
    info = client.info(seed.id)
    assert (info.state, info.attempt, info.ended_ms) == (JobState.COMPLETED, 1, 1)


def test_a_waiting_job_is_known_by_its_workflow(world: World, client: Client) -> None:
    seed = world.ready()
    world.redis.zrem(world.part.queue(seed.queue).ready, seed.id)
    world.redis.hset(world.part.waiting, seed.id, "workflow")
    assert client.state(seed.id) is JobState.WAITING


def test_a_job_that_nobody_knows_is_not_found(client: Client, world: World) -> None:
    for job_id in (NOBODY, keyed_job_id(world.namespace, "default", "k")):
        with pytest.raises(JobNotFound, match=job_id):
            client.info(job_id)
        with pytest.raises(JobNotFound):
            client.cancel(job_id)
        with pytest.raises(JobNotFound):
            client.replay(job_id)
        with pytest.raises(JobNotFound):
            client.reschedule(job_id, soon())
        with pytest.raises(JobNotFound):
            client.result(job_id, timeout_s=5)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("attempts", "x"),
        ("runs", "x"),
        ("finished", "x"),
        ("job", "garbage"),
        ("job", '{"state":1'),
    ],
)
def test_damage_is_told_as_such_and_not_as_an_error_of_python(
    world: World, client: Client, kind: str, value: str
) -> None:
    seed = world.dispatched()
    if kind == "job":
        world.redis.set(world.part.job(seed.id), value)
    else:
        world.redis.hset(getattr(world.part, kind), seed.id, value)
        if kind == "finished":
            world.redis.delete(world.part.job(seed.id))
    with pytest.raises(ScriptFailed, match=f"what is stored of job {seed.id} is damaged"):
        client.info(seed.id)


# cancel


@pytest.mark.parametrize("state", ["scheduled", "dispatched", "ready", "retrying"])
def test_a_job_that_does_not_run_is_cancelled_for_good(
    world: World, client: Client, state: str
) -> None:
    make: Callable[[], Seed] = getattr(world, state)
    seed = make()
    assert client.cancel(seed.id) is CancelResult.CANCELLED
    assert client.state(seed.id) is JobState.CANCELLED
    assert client.cancel(seed.id) is CancelResult.CANCELLED
    assert str(client.cancel(seed.id)) == JobState.CANCELLED
    assert world.take().starts == []
    world.check()


def test_a_running_job_is_asked_to_stop(world: World, client: Client) -> None:
    seed = world.running()
    assert client.cancel(seed.id) is CancelResult.CANCEL_REQUESTED
    assert client.cancel(seed.id) is CancelResult.CANCEL_REQUESTED
    info = client.info(seed.id)
    assert info.state is JobState.RUNNING
    assert info.cancel_requested_ms is not None


@pytest.mark.parametrize(
    ("state", "told"),
    [("dead", "is FAILED: cancel does not apply"), ("ended", "is COMPLETED: cancel does not")],
)
def test_a_job_that_has_ended_cannot_be_cancelled(
    world: World, client: Client, state: str, told: str
) -> None:
    make: Callable[[], Seed] = getattr(world, state)
    with pytest.raises(WrongState, match=told):
        client.cancel(make().id)


def test_a_cancelled_key_answers_for_its_window(world: World, client: Client) -> None:
    job = client.enqueue("t", idempotency_key="k", key_window_s=100)
    assert job.cancel() is CancelResult.CANCELLED
    ttl_ms = world.redis.pttl(world.part.job(job.id))
    assert 90_000 < int(ttl_ms) <= 100_000
    again = client.enqueue("t", idempotency_key="k", key_window_s=100)
    assert not again.created
    assert again.state() is JobState.CANCELLED


# reschedule


def test_a_scheduled_job_gets_another_time(client: Client, world: World) -> None:
    job = client.enqueue_in(3600, "t")
    when = soon()
    job.reschedule(when)
    run_at_ms = job.info().run_at_ms
    assert run_at_ms is not None
    assert 0 <= run_at_ms - when.timestamp() * 1000 <= 1
    job.reschedule(when)  # the same time again is no error
    job.reschedule(datetime(2020, 1, 1, tzinfo=UTC))
    assert job.info().run_at_ms == 1_577_836_800_000
    world.check()


def test_a_retrying_job_gets_another_time(world: World, client: Client) -> None:
    seed = world.retrying()
    client.reschedule(seed.id, soon())
    assert client.state(seed.id) is JobState.SCHEDULED
    world.check()


@pytest.mark.parametrize("state", ["dispatched", "ready", "running", "dead", "ended"])
def test_a_job_in_another_state_has_no_time_to_change(
    world: World, client: Client, state: str
) -> None:
    make: Callable[[], Seed] = getattr(world, state)
    with pytest.raises(WrongState, match="reschedule does not apply"):
        client.reschedule(make().id, soon())


def test_bad_times_are_refused_and_change_nothing(client: Client) -> None:
    job = client.enqueue_in(3600, "t")
    before = job.info()
    far = datetime.now(UTC) + timedelta(seconds=LIMITS.horizon_s + 60)
    for when in (datetime(2030, 1, 1), far, datetime.max.replace(tzinfo=UTC)):  # noqa: DTZ001
        with pytest.raises(InvalidArgument, match="when: "):
            job.reschedule(when)
    assert job.info() == before


# replay


def test_a_dead_job_is_due_again_with_its_counts_at_0(world: World, client: Client) -> None:
    checkpoint = Past(
        failures=5,
        crashes=2,
        last="failed",
        dead="failure",
        error=ERROR,
        checkpoint=msgspec.Raw(b'{"n":3}'),
    )
    seed = world.dead(past=checkpoint, attempt=5)
    client.replay(seed.id)
    info = client.info(seed.id)
    assert (info.state, info.attempt, info.failures, info.crashes) == (JobState.SCHEDULED, 5, 0, 0)
    assert info.error == ERROR
    stored = world.locate(seed).attempts
    assert (
        encode_past(Past(last="failed", error=ERROR, checkpoint=msgspec.Raw(b'{"n":3}'))) in stored
    )
    world.check()


@pytest.mark.parametrize("state", ["scheduled", "dispatched", "ready", "running", "ended"])
def test_only_a_dead_job_is_replayed(world: World, client: Client, state: str) -> None:
    make: Callable[[], Seed] = getattr(world, state)
    with pytest.raises(WrongState, match="replay does not apply"):
        client.replay(make().id)


# races


class Meddling:
    """Lets somebody else act just before a call of one script reaches Redis."""

    def __init__(self, client: Client, script: str, act: Callable[[int], object]) -> None:
        store: Any = vars(client)["_store"]
        self.count = 0
        call = store.call

        def meddle(sent: Call[Any], **given: Any) -> Any:
            if sent.script == script:
                self.count += 1
                act(self.count)
            return call(sent, **given)

        store.call = meddle


def test_a_reschedule_that_meets_another_one_looks_again(world: World, client: Client) -> None:
    job = client.enqueue_in(3600, "t")
    due = world.part.queue("default").due

    def move_once(count: int) -> None:
        if count == 1:
            world.redis.zincrby(due, 1, job.id)

    meddling = Meddling(client, "reschedule", move_once)
    job.reschedule(soon())
    assert meddling.count == 2


def test_a_reschedule_that_always_meets_another_one_is_a_conflict(
    world: World, client: Client
) -> None:
    job = client.enqueue_in(3600, "t")
    due = world.part.queue("default").due
    meddling = Meddling(client, "reschedule", lambda _: world.redis.zincrby(due, 1, job.id))
    with pytest.raises(Conflict, match=job.id):
        job.reschedule(soon())
    assert meddling.count == 3


def test_a_job_that_fires_before_its_reschedule_is_told_as_it_is(
    world: World, client: Client
) -> None:
    seed = world.overdue()

    def fire(_: int) -> None:
        world.run(owner.fire(world.part, seed.queue, [seed.id], tag=world.tag()))

    Meddling(client, "reschedule", fire)
    with pytest.raises(WrongState, match="is DISPATCHED"):
        client.reschedule(seed.id, soon())


def test_a_job_that_ends_before_its_cancel_is_told_as_it_is(
    world: World, client: Client, server: TestServer
) -> None:
    seed = world.running()
    Meddling(client, "cancel", lambda _: world.finish(seed, "C"))
    with pytest.raises(WrongState, match="is COMPLETED"):
        client.cancel(seed.id)
    other = world.dispatched()
    with Client(server.url, namespace=world.namespace) as second:
        Meddling(client, "cancel", lambda _: second.cancel(other.id))
        assert client.cancel(other.id) is CancelResult.CANCELLED


def test_a_job_replayed_by_somebody_else_is_told_as_it_is(
    world: World, client: Client, server: TestServer
) -> None:
    seed = world.dead()
    with Client(server.url, namespace=world.namespace) as second:
        Meddling(client, "replay", lambda _: second.replay(seed.id))
        with pytest.raises(WrongState, match="is SCHEDULED"):
            client.replay(seed.id)
