"""reschedule: another time for a job in due, if it still has the one that the caller saw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from redjob.calls import jobs
from tests.support.dump import Journaled, changes
from tests.support.seed import QUEUE

if TYPE_CHECKING:
    from tests.support.seed import Job
    from tests.support.world import World


def reschedule(world: World, job: Job, seen_ms: int, run_at_ms: int) -> str:
    return world.run(
        jobs.reschedule(
            world.part, QUEUE, job.id, seen_ms=seen_ms, run_at_ms=run_at_ms, tag=world.tag()
        )
    ).code


@pytest.mark.parametrize("by_ms", [-30_000, 30_000], ids=["earlier", "later"])
def test_a_job_in_due_gets_another_time(world: World, by_ms: int) -> None:
    job = world.scheduled()
    target = job.run_at_ms + by_ms
    assert reschedule(world, job, job.run_at_ms, target) == "S"
    state = world.check()
    assert state[f"due:q/{job.id}"] == target
    assert state["queues/q"] == min(target, job.run_at_ms)  # never later than the first job


def test_a_time_in_the_past_fires_at_once(world: World) -> None:
    job = world.scheduled()
    assert reschedule(world, job, job.run_at_ms, world.now_ms - 5000) == "S"
    assert world.fire(job).codes == "D"


def test_the_target_time_is_a_repeat_whoever_set_it(world: World) -> None:
    job = world.scheduled()
    target = job.run_at_ms + 1
    reschedule(world, job, job.run_at_ms, target)
    before = world.dump()
    assert reschedule(world, job, job.run_at_ms, target) == "="
    assert reschedule(world, job, 1, target) == "="
    assert changes(before, world.check()) == {}


def test_another_time_than_was_seen_is_a_conflict(world: World) -> None:
    job = world.scheduled()
    reschedule(world, job, job.run_at_ms, job.run_at_ms + 1)
    before = world.dump()
    assert reschedule(world, job, job.run_at_ms, job.run_at_ms + 2) == "C"
    assert changes(before, world.check()) == {}


@pytest.mark.parametrize("place", ["stream", "ready", "running", "dead", "ended", "unknown"])
def test_a_job_that_is_not_in_due_is_left_alone(world: World, place: str) -> None:
    makers = {
        "stream": world.dispatched,
        "ready": world.ready,
        "running": world.running,
        "dead": world.dead,
        "ended": world.ended,
        "unknown": world.job,
    }
    job = makers[place]()
    before = world.dump()
    assert reschedule(world, job, world.now_ms, world.now_ms + 1) == "A"
    assert changes(before, world.check()) == {}


def test_a_job_without_record_stays_at_its_time_to_be_restored(world: World) -> None:
    job = world.scheduled()
    world.redis.delete(world.part.job(job.id))
    before = world.dump()
    assert reschedule(world, job, job.run_at_ms, job.run_at_ms + 1) == "N"
    assert changes(before, world.dump()) == {}


def test_the_attempts_so_far_stand_in_the_journal(world: World) -> None:
    job = world.retrying(attempt=2, delay_ms=1000)
    seen_ms = world.now_ms + 1000
    assert reschedule(world, job, seen_ms, seen_ms + 1) == "S"
    entry = world.check()[f"journal/{world.seq}"]
    assert isinstance(entry, Journaled)
    assert entry.lines == (job.line(f"S 2 {seen_ms + 1} q"),)


@pytest.mark.parametrize("seen", ["repeat", "conflict", "elsewhere", "lost"])
def test_who_waits_for_postgres_gets_an_entry_also_where_nothing_changed(
    world: World, seen: str
) -> None:
    job = world.dispatched() if seen == "elsewhere" else world.scheduled()
    target = job.run_at_ms + (seen != "repeat")
    seen_ms = job.run_at_ms + (seen == "conflict")
    if seen == "lost":
        world.redis.delete(world.part.job(job.id))
    before, tag = world.dump(), f"w{world.tag()[1:]}"
    call = jobs.reschedule(world.part, QUEUE, job.id, seen_ms=seen_ms, run_at_ms=target, tag=tag)
    assert (
        world.run(call).code
        == {"repeat": "=", "conflict": "C", "elsewhere": "A", "lost": "N"}[seen]
    )
    assert changes(before, world.dump()) == world.journaled("again", tag)
