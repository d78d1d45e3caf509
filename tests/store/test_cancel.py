"""cancel: what has not begun ends, what runs is asked, what has ended says how."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from redjob.codec import decode_stub
from redjob.model import JobState
from tests.support.dump import changes
from tests.support.seed import QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.seed import Job
    from tests.support.world import World


def held(world: World) -> Job:
    job = world.ready()
    world.redis.zrem(world.part.queue(QUEUE).ready, job.id)
    world.redis.zadd(world.part.queue(QUEUE).held, {job.id: 1})
    return job


WAITING: dict[str, Callable[[World], Job]] = {
    "due": lambda world: world.scheduled(),
    "stream": lambda world: world.dispatched(),
    "ready": lambda world: world.ready(),
    "held": held,
    "retry": lambda world: world.retrying(),
}


@pytest.mark.parametrize("place", WAITING)
def test_a_job_that_has_not_begun_ends_wherever_it_waits(world: World, place: str) -> None:
    job = WAITING[place](world)
    assert world.cancel(job).code == "K"
    world.check()
    assert world.state_of(job) == JobState.CANCELLED
    assert world.take().starts == []


def test_a_cancelled_job_does_not_fire_although_an_owner_has_seen_it(world: World) -> None:
    job = world.overdue()
    world.cancel(job)
    assert world.fire(job).codes == "A"
    world.check()


def test_the_same_request_again_is_told_the_same_and_another_that_it_has_ended(
    world: World,
) -> None:
    job, tag = world.scheduled(), world.tag()
    assert world.cancel(job, tag=tag).code == "K"
    before = world.dump()
    assert world.cancel(job, tag=tag).code == "K"
    other = world.cancel(job)
    assert (other.code, other.detail[:2]) == ("E", b"K ")
    assert changes(before, world.check()) == {}


def test_a_keyed_job_leaves_its_stub_and_a_repeat_knows_it(world: World) -> None:
    job, tag = world.scheduled(key="k"), world.tag()
    stub = job.stub(JobState.CANCELLED)
    assert world.cancel(job, stub=stub, tag=tag).code == "K"
    before = world.check()
    assert world.cancel(job, stub=stub, tag=tag).code == "K"
    other = world.cancel(job)
    assert other.code == "E"
    assert decode_stub(other.detail).state == JobState.CANCELLED
    assert changes(before, world.check()) == {}


def test_a_running_job_is_asked_once_and_the_first_time_stays(world: World) -> None:
    job = world.running()
    asked_ms = world.now_ms
    assert world.cancel(job).code == "Q"
    world.advance(5)
    before = world.dump()
    assert world.cancel(job).code == "Q"
    assert changes(before, world.check()) == {}
    assert world.locate(job).cancel == str(asked_ms).encode()


def test_asking_is_journaled_and_moves_nothing(world: World) -> None:
    job = world.running()
    tag = world.tag()
    before = world.dump()
    world.cancel(job, tag=tag)
    assert changes(before, world.check()) == world.journaled("cancel", tag, job.line("T")) | {
        f"cancels/{job.id}": str(world.now_ms)
    }


def test_a_dead_job_is_dead_already(world: World) -> None:
    job = world.dead()
    before = world.dump()
    assert world.cancel(job).code == "F"
    assert changes(before, world.check()) == {}


@pytest.mark.parametrize("stub", [False, True], ids=["tombstone", "stub"])
def test_a_job_that_has_ended_says_how(world: World, stub: bool) -> None:
    job = world.ended(key="k", stub=stub)
    before = world.dump()
    reply = world.cancel(job)
    assert reply.code == "E"
    assert reply.detail.startswith(b'{"state":"COMPLETED"' if stub else b"C ")
    assert changes(before, world.check()) == {}


def test_a_stub_whose_tombstone_is_gone_still_says_how(world: World) -> None:
    job = world.ended(key="k", stub=True)
    world.redis.hdel(world.part.finished, job.id)
    assert world.cancel(job).code == "E"


def test_a_job_that_nobody_knows_is_absent(world: World) -> None:
    before = world.dump()
    assert world.cancel(world.job()).code == "A"
    assert changes(before, world.check()) == {}


@pytest.mark.parametrize("place", ["absent", "ended", "stub", "dead", "asked", "repeat"])
def test_who_waits_for_postgres_gets_an_entry_also_where_nothing_changed(
    world: World, place: str
) -> None:
    job, tag = unchangeable(world, place)
    world.cancel(job, tag=tag) if place == "repeat" else None
    before = world.dump()
    world.cancel(job, tag=tag)
    assert world.check() == before | world.journaled("again", tag)


def unchangeable(world: World, place: str) -> tuple[Job, str]:
    makers = {
        "absent": world.job,
        "ended": world.ended,
        "stub": lambda: world.ended(key="k", stub=True),
        "dead": world.dead,
        "asked": world.running,
        "repeat": world.scheduled,
    }
    job = makers[place]()
    if place == "asked":
        world.cancel(job)
    return job, f"w{world.tag()[1:]}"


def test_the_attempts_so_far_stand_in_the_journal_and_are_dropped(world: World) -> None:
    job, tag = world.retrying(attempt=2), world.tag()
    world.cancel(job, tag=tag)
    state = world.check()
    assert (
        state[f"journal/{world.seq}"]
        == world.journaled("cancel", tag, job.line("K 2"))[f"journal/{world.seq}"]
    )
    assert f"attempts/{job.id}" not in state


def test_those_who_wait_are_told(world: World) -> None:
    job = world.scheduled()
    world.redis.set(world.part.waiters, "1", px=60_000)
    world.cancel(job)
    ((_, fields),) = world.redis.xrange(world.part.done)
    assert fields == {b"id": job.id.encode(), b"state": b"K"}
