"""locate: one look at all places of a job, whatever state the partition is in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.seed import QUEUE, RESULT

if TYPE_CHECKING:
    from redjob.calls.jobs import Located
    from tests.support.seed import Job
    from tests.support.world import World


def found(world: World, job: Job) -> dict[str, bytes]:
    """What there is, without what there is not; the record is checked and left out."""
    located: Located = world.locate(job)
    assert located.at.now_ms == world.now_ms
    there = {name: value for name, value in located._asdict().items() if value and name != "at"}
    if there.get("doc") == job.doc:
        del there["doc"]
    return there


def score(ms: int) -> bytes:
    return str(ms).encode()


def test_nothing_is_found_of_a_job_that_nobody_knows(world: World) -> None:
    assert found(world, world.job()) == {}


def test_a_job_in_due(world: World) -> None:
    job = world.scheduled()
    assert found(world, job) == {"due": score(job.run_at_ms)}


def test_a_job_in_its_stream(world: World) -> None:
    job = world.dispatched()
    assert found(world, job) == {"entry": world.entry_of(job).encode()}


def test_a_job_in_ready_and_one_that_is_held(world: World) -> None:
    job, held = world.ready(), world.ready()
    world.redis.zrem(world.part.queue(QUEUE).ready, held.id)
    world.redis.zadd(world.part.queue(QUEUE).held, {held.id: 5})
    assert set(found(world, job)) == {"ready"}
    assert found(world, held) == {"held": b"5"}


def test_a_running_job_with_all_that_it_can_have(world: World) -> None:
    job = world.running(attempt=2)
    world.heartbeat(job, 2, progress=b"{}")
    world.cancel(job)
    there = found(world, job)
    assert there.pop("attempts").startswith(b"1 ")
    assert there == {
        "run": b"2 worker1",
        "lease": score(world.now_ms + 30_000),
        "progress": b"{}",
        "cancel": score(world.now_ms),
    }


def test_a_dead_job(world: World) -> None:
    job = world.dead()
    assert set(found(world, job)) == {"dead", "attempts"}


def test_a_job_that_has_ended(world: World) -> None:
    job = world.running()
    world.finish(job, "C", result_ttl_ms=60_000)
    there = found(world, job)
    assert there.pop("tombstone").startswith(b"C ")
    assert there == {"result": RESULT}


def test_a_stub(world: World) -> None:
    job = world.ended(key="k", stub=True)
    assert found(world, job)["doc"].startswith(b'{"state":')


def test_a_step_that_waits_for_its_workflow(world: World) -> None:
    job = world.job()
    world.redis.hset(world.part.waiting, job.id, "workflow-1")
    assert found(world, job) == {"workflow": b"workflow-1"}


def test_looking_changes_nothing_and_needs_no_queue_once_the_record_is_gone(world: World) -> None:
    job = world.ended()
    before = world.dump()
    from_nowhere = type(job)(job.id, "", job.tenant, job.priority, job.run_at_ms, job.doc)
    assert world.locate(from_nowhere).tombstone.startswith(b"C ")
    assert world.dump() == before
