"""finish after the lease is gone: a success counts while nothing newer runs or has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from redjob.model import JobState, Past
from tests.support.dump import Expiring, changes
from tests.support.seed import RESULT
from tests.support.world import CRASHED, WORKER

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.seed import Job
    from tests.support.world import World


def reclaimed(world: World, outcome: str = "R") -> Job:
    """A job whose first attempt was taken for dead."""
    job = world.running(lease_ms=1)
    world.watch()
    past = CRASHED if outcome == "F" else None
    assert world.reclaim(job, outcome=outcome, past=past, delay_ms=1, result_ttl_ms=5000) == "M"
    return job


def in_due(world: World) -> Job:
    return reclaimed(world)


def in_the_stream(world: World) -> Job:
    job = reclaimed(world)
    world.advance(1)
    assert world.fire(job).codes == "D"
    return job


def in_ready(world: World) -> Job:
    job = reclaimed(world)
    world.advance(1)
    world.limit(job.queue, 0)
    parked = world.redis.zscore(world.part.queue(job.queue).due, job.id)
    moved = type(job)(job.id, job.queue, job.tenant, job.priority, int(parked), job.doc)
    assert world.park(moved).codes == "R"
    return job


def dead_by_crash(world: World) -> Job:
    return reclaimed(world, "F")


PLACES: dict[str, Callable[[World], Job]] = {
    "due": in_due,
    "stream": in_the_stream,
    "ready": in_ready,
    "dead": dead_by_crash,
}
_place = pytest.mark.parametrize("place", PLACES)


@_place
def test_a_late_success_counts(world: World, place: str) -> None:
    job = PLACES[place](world)
    assert world.finish(job, "C", result_ttl_ms=5000) == "V"
    state = world.check()
    assert world.state_of(job) == JobState.COMPLETED
    assert state[f"result:{job.id}"] == Expiring(RESULT.decode())
    world.limit(job.queue, None)
    assert world.take().starts == []


@_place
def test_no_verdict_of_a_crash_stays_beside_a_success_without_result(
    world: World, place: str
) -> None:
    job = PLACES[place](world)
    assert world.finish(job, "C") == "V"
    assert f"result:{job.id}" not in world.check()


@_place
@pytest.mark.parametrize("outcome", "RZBFX")
def test_any_other_late_outcome_is_lost(world: World, place: str, outcome: str) -> None:
    job = PLACES[place](world)
    before = world.dump()
    assert world.finish(job, outcome) == "L"
    assert changes(before, world.check()) == {}


@_place
def test_a_success_of_another_life_of_the_key_is_lost(world: World, place: str) -> None:
    job = PLACES[place](world)
    record = world.redis.get(world.part.job(job.id))
    world.redis.set(world.part.job(job.id), record.replace(b'"created":1', b'"created":2', 1))
    before = world.dump()
    assert world.finish(job, "C") == "L"
    assert changes(before, world.check()) == {}


@_place
def test_the_last_attempt_may_be_late_or_the_one_before_it(world: World, place: str) -> None:
    """A rollback may have forgotten the start of the attempt that comes in late."""
    job = PLACES[place](world)
    before = world.dump()
    assert world.finish(job, "C", 3) == "L"
    assert changes(before, world.check()) == {}
    assert world.finish(job, "C", 2) == "V"


def test_a_success_is_refused_while_a_newer_attempt_runs(world: World) -> None:
    job = in_the_stream(world)
    world.take(worker="another")
    before = world.dump()
    assert world.finish(job, "C") == "L"
    assert changes(before, world.check()) == {}
    assert world.finish(job, "C", 2, worker="another") == "M"


def test_a_success_is_refused_while_the_same_worker_runs_it_again(world: World) -> None:
    job = in_the_stream(world)
    world.take(worker=WORKER)
    assert world.finish(job, "C", 1) == "L"
    assert world.finish(job, "C", 2) == "M"


@pytest.mark.parametrize("outcome", "CX")
def test_a_success_is_refused_when_a_newer_attempt_has_ended(world: World, outcome: str) -> None:
    job = in_the_stream(world)
    world.take(worker="another")
    world.finish(job, outcome, 2, worker="another")
    before = world.dump()
    assert world.finish(job, "C") == "L"
    assert changes(before, world.check()) == {}


def test_a_success_of_a_cancelled_job_is_lost(world: World) -> None:
    job = in_due(world)
    world.cancel(job)
    before = world.dump()
    assert world.finish(job, "C") == "L"
    assert changes(before, world.check()) == {}


@pytest.mark.parametrize("dead", ["failure", "rejected"])
def test_a_job_that_died_of_its_failures_stays_dead(world: World, dead: str) -> None:
    job = in_the_stream(world)
    world.take(worker="another")
    past = Past(failures=5, dead="failure" if dead == "failure" else "rejected")
    world.finish(job, "F", 2, worker="another", past=past)
    before = world.dump()
    assert world.finish(job, "C") == "L"
    assert changes(before, world.check()) == {}


def test_a_stray_end_of_a_job_that_never_began_counts_as_the_first_attempt(world: World) -> None:
    """After a rollback to before the first start."""
    job = world.dispatched()
    saved = world.save()
    world.take()
    world.restore(saved)
    assert world.finish(job, "C") == "V"
    assert world.take().stale == [job.id]
    world.check()


def test_those_who_wait_are_told_of_a_late_success(world: World) -> None:
    job = dead_by_crash(world)
    world.redis.set(world.part.waiters, "1", px=60_000)
    world.finish(job, "C")
    ((_, fields),) = world.redis.xrange(world.part.done)
    assert fields == {b"id": job.id.encode(), b"state": b"C"}


def test_a_late_success_leaves_a_stub_and_no_attempts(world: World) -> None:
    job = world.running(key="k", lease_ms=1)
    world.watch()
    world.reclaim(job)
    assert world.finish(job, "C", stub=job.stub()) == "V"
    found = world.locate(job)
    assert (found.doc.startswith(b'{"state":"COMPLETED"'), found.attempts) == (True, b"")
    world.check()
