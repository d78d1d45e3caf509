"""requeue: a new entry for jobs that nobody began, and only for those."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from redjob.errors import Grace
from redjob.model import JobState
from tests.support.dump import GONE, Journaled, changes
from tests.support.ground import LEASE_MS
from tests.support.seed import QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.seed import Job
    from tests.support.world import World


def read_and_forgotten(world: World, n: int = 1) -> tuple[list[Job], list[str]]:
    """Jobs that a consumer was given and never began, and their entries."""
    new = [world.dispatched() for _ in range(n)]
    entries = [entry for entry, _ in world.read()]
    world.watch()
    return new, entries


def test_entries_that_were_never_begun_are_replaced_in_one_journal_entry(world: World) -> None:
    new, entries = read_and_forgotten(world, 3)
    assert world.requeue(*zip(new, entries, strict=True)) == "DDD"
    state = world.check()
    entry = state[f"journal/{world.seq}"]
    assert isinstance(entry, Journaled)
    assert entry.lines == tuple(job.line("D") for job in new)
    assert "stream:q/pending" not in state
    assert state["flow:q/depth"] == "3"
    assert [start.id for start in world.take().starts] == [job.id for job in new]


def test_a_sweeper_that_was_not_heard_of_must_wait_a_lease(world: World) -> None:
    job = world.dispatched()
    before = world.dump()
    with pytest.raises(Grace) as caught:
        world.requeue((job, world.entry_of(job)))
    assert caught.value.until_ms == world.now_ms + LEASE_MS
    assert set(changes(before, world.check())) == {"meta/grace_until", "meta/seen_ms"}


def test_an_entry_that_is_gone_is_replaced(world: World) -> None:
    job = world.dispatched()
    entry = world.entry_of(job)
    world.redis.xdel(world.part.queue(QUEUE).stream, entry)
    world.redis.hset(world.part.queue(QUEUE).flow, "depth", 0)
    world.watch()
    assert world.requeue((job, "")) == "D"
    assert world.entry_of(job) != entry
    world.check()


def test_a_job_in_no_place_is_put_back(world: World) -> None:
    job = world.dispatched()
    world.watch()
    world.take()
    world.redis.hdel(world.part.runs, job.id)
    world.redis.zrem(world.part.running, job.id)
    assert world.requeue((job, "")) == "D"
    world.check()
    assert [start.id for start in world.take().starts] == [job.id]


def held(world: World) -> Job:
    job = world.ready()
    world.redis.zrem(world.part.queue(QUEUE).ready, job.id)
    world.redis.zadd(world.part.queue(QUEUE).held, {job.id: 1})
    return job


def waiting(world: World) -> Job:
    job = world.scheduled()
    world.redis.zrem(world.part.queue(QUEUE).due, job.id)
    world.redis.hset(world.part.waiting, job.id, "workflow")
    return job


def lease_only(world: World) -> Job:
    job = world.running()
    world.redis.hdel(world.part.runs, job.id)
    return job


PLACES: dict[str, Callable[[World], Job]] = {
    "due": lambda world: world.scheduled(),
    "stream": lambda world: world.dispatched(),
    "ready": lambda world: world.ready(),
    "held": held,
    "running": lambda world: world.running(),
    "running by half": lease_only,
    "dead": lambda world: world.dead(),
    "waiting": waiting,
}


@pytest.mark.parametrize("place", PLACES)
def test_a_job_that_is_where_it_should_be_stays_there(world: World, place: str) -> None:
    job = PLACES[place](world)
    world.watch()
    before = world.dump()
    assert world.requeue((job, "")) == "A"
    assert changes(before, world.dump()) == {}


@pytest.mark.parametrize("stub", [False, True], ids=["gone", "stub"])
def test_a_job_that_has_ended_is_not_put_back(world: World, stub: bool) -> None:
    job = world.ended(key="k", stub=stub)
    world.watch()
    before = world.dump()
    assert world.requeue((job, "")) == "N"
    assert changes(before, world.check()) == {}


def test_an_entry_of_a_job_that_runs_by_now_is_settled_alone(world: World) -> None:
    job = world.dispatched()
    old = world.redis.xadd(world.part.queue(QUEUE).stream, {"id": job.id, "doc": job.doc}).decode()
    world.redis.hincrby(world.part.queue(QUEUE).flow, "depth", 1)
    world.begin(job)
    world.watch()
    before = world.dump()
    assert world.requeue((job, old)) == "A"
    changed = changes(before, world.check())
    assert changed == {f"stream:q/{world.dump.entry(old)}": GONE, "flow:q/depth": "0"}
    assert world.state_of(job) == JobState.RUNNING


def test_an_entry_of_a_job_that_is_gone_is_settled_alone(world: World) -> None:
    job = world.dispatched()
    entry = world.entry_of(job)
    world.read()
    world.cancel(job)
    world.watch()
    assert world.requeue((job, entry)) == "N"
    state = world.check()
    assert state["flow:q/depth"] == "0"
    assert "stream:q/pending" not in state


def test_an_old_entry_does_not_replace_the_one_that_is_named(world: World) -> None:
    (job,), (old,) = read_and_forgotten(world)
    world.requeue((job, old))
    named = world.entry_of(job)
    before = world.dump()
    assert world.requeue((job, old)) == "A"
    assert changes(before, world.check()) == {}
    assert world.entry_of(job) == named


def test_an_entry_that_nobody_knows_changes_no_depth(world: World) -> None:
    job = world.dispatched()
    world.watch()
    before = world.dump()
    assert world.requeue((job, "1-1")) == "A"
    assert changes(before, world.check()) == {}


def test_workers_are_woken_for_what_came_back(world: World) -> None:
    (job,), (old,) = read_and_forgotten(world)
    world.redis.delete(world.part.queue(QUEUE).bell)
    world.requeue((job, old))
    assert world.check()["bell:q"] == 1
