"""replay: a dead job goes back to due, if it still has the time of death that the caller saw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from redjob.calls import jobs
from redjob.model import JobState, Past
from tests.support.dump import changes
from tests.support.seed import QUEUE

if TYPE_CHECKING:
    from tests.support.seed import Job
    from tests.support.world import World


def replay(world: World, job: Job, died_ms: int, tag: str | None = None) -> str:
    call = jobs.replay(
        world.part, QUEUE, job.id, died_ms=died_ms, past=b"{}", tag=tag or world.tag()
    )
    return world.run(call).code


def test_a_dead_job_is_due_now_with_its_attempt_number_and_a_new_past(world: World) -> None:
    job = world.dead(attempt=2, past=Past(failures=5, dead="failure"))
    died_ms = world.now_ms
    world.advance(10)
    assert replay(world, job, died_ms) == "S"
    state = world.check()
    assert state[f"due:q/{job.id}"] == world.now_ms
    assert str(state[f"attempts/{job.id}"]).startswith("2 ")
    assert str(state[f"attempts/{job.id}"]).endswith(" {}")
    assert world.fire(job).codes == "D"
    world.take()
    assert world.finish(job, "C", 3) == "M"


def test_a_repeated_replay_is_known_by_its_tag_and_moves_nothing(world: World) -> None:
    job, tag = world.dead(), world.tag()
    died_ms = world.now_ms
    assert replay(world, job, died_ms, tag) == "S"
    before = world.dump()
    assert replay(world, job, died_ms, tag) == "="
    assert replay(world, job, died_ms) == "A"
    assert changes(before, world.check()) == {}


def test_a_job_that_died_again_is_a_conflict(world: World) -> None:
    job = world.dead()
    died_ms = world.now_ms
    replay(world, job, died_ms)
    world.fire(job)
    world.take()
    world.advance(1)
    world.finish(job, "F", 2)
    before = world.dump()
    assert replay(world, job, died_ms) == "C"
    assert changes(before, world.check()) == {}


@pytest.mark.parametrize("place", ["due", "stream", "running", "ended", "unknown"])
def test_only_the_dead_are_replayed(world: World, place: str) -> None:
    makers = {
        "due": world.scheduled,
        "stream": world.dispatched,
        "running": world.running,
        "ended": world.ended,
        "unknown": world.job,
    }
    job = makers[place]()
    before = world.dump()
    assert replay(world, job, world.now_ms) == "A"
    assert changes(before, world.check()) == {}


def test_a_dead_job_without_record_stays_where_it_is(world: World) -> None:
    job = world.dead()
    world.redis.delete(world.part.job(job.id))
    before = world.dump()
    assert replay(world, job, world.now_ms) == "N"
    assert changes(before, world.dump()) == {}


def test_a_replayed_job_may_be_cancelled_and_die_again(world: World) -> None:
    first, second = world.dead(), world.dead()
    for job in (first, second):
        assert replay(world, job, world.now_ms) == "S"
    assert world.cancel(first).code == "K"
    world.fire(second)
    world.take()
    assert world.finish(second, "F", 2) == "M"
    assert world.state_of(second) == JobState.FAILED
    world.check()


@pytest.mark.parametrize("seen", ["repeat", "again", "elsewhere"])
def test_who_waits_for_postgres_gets_an_entry_also_where_nothing_changed(
    world: World, seen: str
) -> None:
    job = world.scheduled() if seen == "elsewhere" else world.dead()
    died_ms, tag = world.now_ms - (seen == "again"), f"w{world.tag()[1:]}"
    if seen == "repeat":
        replay(world, job, died_ms, tag)
    before = world.dump()
    assert replay(world, job, died_ms, tag) == {"repeat": "=", "again": "C", "elsewhere": "A"}[seen]
    assert world.check() == before | world.journaled("again", tag)
