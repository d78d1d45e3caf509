"""lose: jobs whose record is gone: put back from their entry, or out of every place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from redjob.calls import sweep
from tests.support.dump import GONE, Journaled, changes
from tests.support.ground import LEASE_MS
from tests.support.seed import QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.seed import Job
    from tests.support.world import World


def lose(world: World, *jobs: Job, queues: tuple[str, ...] = (QUEUE,)) -> str:
    ids = [job.id for job in jobs]
    return world.run(sweep.lose(world.part, queues, ids, tag=world.tag())).codes


def without_record(world: World, job: Job) -> Job:
    world.redis.delete(world.part.job(job.id))
    return job


def over(world: World) -> Job:
    job = world.running(lease_ms=1)
    world.advance(1)
    return job


WAITING: dict[str, Callable[[World], Job]] = {
    "due": lambda world: world.scheduled(),
    "retry": lambda world: world.retrying(),
    "ready": lambda world: world.ready(),
    "lease over": over,
}


@pytest.mark.parametrize("place", WAITING)
def test_a_job_without_record_leaves_its_place_for_the_lost(world: World, place: str) -> None:
    job = without_record(world, WAITING[place](world))
    assert lose(world, job) == "L"
    state = world.check()  # it is in no place any more
    assert state[f"lost/{job.id}"] == world.now_ms
    entry = state[f"journal/{world.seq}"]
    assert isinstance(entry, Journaled)
    attempt = 0 if place in {"due", "ready"} else 1
    assert (entry.op, entry.lines) == ("lose", (f"{job.id} - L {attempt}",))


def test_a_lost_job_is_lost_once(world: World) -> None:
    job = without_record(world, world.scheduled())
    lose(world, job)
    before = world.dump()
    assert lose(world, job) == "L"
    assert changes(before, world.check()) == {}


def test_the_entry_that_is_named_gives_the_record_back(world: World) -> None:
    job = without_record(world, world.dispatched())
    before = world.dump()
    assert lose(world, job, queues=("other", QUEUE)) == "D"
    assert changes(before, world.check())[f"job:{job.id}"] == job.text
    assert [start.id for start in world.take().starts] == [job.id]


def test_without_its_entry_a_dispatched_job_is_lost(world: World) -> None:
    job = without_record(world, world.dispatched())
    world.redis.delete(world.part.queue(QUEUE).stream)
    world.redis.hset(world.part.queue(QUEUE).flow, "depth", 0)
    before = world.dump()
    assert lose(world, job) == "L"
    assert changes(before, world.check())[f"dispatched/{job.id}"] is GONE


def test_who_holds_a_live_lease_is_left_to_end_the_job(world: World) -> None:
    job = without_record(world, world.running())
    before = world.dump()
    assert lose(world, job) == "H"
    assert changes(before, world.dump()) == {}
    assert world.finish(job, "C") == "M"
    world.check()


def test_cancel_and_progress_go_with_the_attempt(world: World) -> None:
    job = world.running()
    world.heartbeat(job, progress=b"{}")
    world.cancel(job)
    world.advance(LEASE_MS)
    assert lose(world, without_record(world, job)) == "L"
    world.check()


def test_a_job_that_has_its_record_or_no_place_is_left_alone(world: World) -> None:
    there, ended, unknown = world.scheduled(), world.ended(), world.job()
    before = world.dump()
    assert lose(world, there, ended, unknown) == "AAA"
    assert changes(before, world.check()) == {}
