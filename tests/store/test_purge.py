"""purge: dead jobs that go for good when their time is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redjob.calls import sweep
from redjob.codec import decode_stub, decode_tombstone
from redjob.model import JobState
from tests.support.dump import Journaled, changes
from tests.support.seed import QUEUE

if TYPE_CHECKING:
    from tests.support.seed import Job
    from tests.support.world import World

KEEP_MS = 1000


def purge(world: World, *dead: Job, tag: str | None = None, stub: bytes = b"") -> str:
    pairs = [(job.id, stub) for job in dead]
    return world.run(
        sweep.purge(world.part, QUEUE, pairs, keep_ms=KEEP_MS, tag=tag or world.tag())
    ).codes


def test_each_job_is_answered_for_itself(world: World) -> None:
    old = world.dead()
    world.advance(KEEP_MS)
    young, due = world.dead(), world.scheduled()
    assert purge(world, old, young, due, world.job()) == "MYAA"
    entry = world.check()[f"journal/{world.seq}"]
    assert isinstance(entry, Journaled)
    assert entry.lines == (old.line("F 1"),)


def test_a_dead_job_stays_to_the_last_millisecond_of_its_time(world: World) -> None:
    job = world.dead()
    world.advance(KEEP_MS - 1)
    before = world.dump()
    assert purge(world, job) == "Y"
    assert changes(before, world.check()) == {}
    world.advance(1)
    assert purge(world, job) == "M"


def test_record_attempts_and_result_go_and_a_tombstone_stays(world: World) -> None:
    job, tag = world.running(), world.tag()
    world.finish(job, "F", result_ttl_ms=60_000)
    world.advance(KEEP_MS)
    assert purge(world, job, tag=tag) == "M"
    found = world.locate(job)
    assert decode_tombstone(found.tombstone) == (
        JobState.FAILED, world.seq, world.now_ms, 1, tag,
    )  # fmt: skip
    assert (found.doc, found.result, found.dead, found.attempts) == (b"", b"", b"", b"")
    world.check()


def test_a_stub_stays_of_a_keyed_job(world: World) -> None:
    job = world.dead(key="k")
    world.advance(KEEP_MS)
    assert purge(world, job, stub=job.stub(JobState.FAILED)) == "M"
    assert decode_stub(world.locate(job).doc).state == JobState.FAILED
    assert world.enqueue(world.job(key="k")) == "E"


def test_the_same_request_again_is_known_and_another_finds_nothing(world: World) -> None:
    job, tag = world.dead(), world.tag()
    world.advance(KEEP_MS)
    purge(world, job, tag=tag)
    before = world.dump()
    assert purge(world, job, tag=tag) == "="
    assert purge(world, job) == "A"
    assert changes(before, world.check()) == {}


def test_a_replayed_job_is_not_dropped(world: World) -> None:
    job = world.dead()
    world.redis.zrem(world.part.queue(QUEUE).dead, job.id)
    world.redis.zadd(world.part.queue(QUEUE).due, {job.id: world.now_ms})
    world.redis.zadd(world.part.queues, {QUEUE: world.now_ms})
    world.advance(KEEP_MS)
    assert purge(world, job) == "A"
    world.check()


def test_a_full_batch_is_one_call(world: World) -> None:
    new = [world.job() for _ in range(500)]
    world.enqueue(*new)
    world.take(500)
    for job in new[:3]:
        world.finish(job, "F")
    world.redis.zadd(world.part.queue(QUEUE).dead, {job.id: world.now_ms for job in new[3:]})
    world.redis.delete(world.part.running, world.part.runs)
    world.advance(KEEP_MS)
    assert purge(world, *new) == "M" * 500
    state = world.check()
    assert not [name for name in state if name.startswith(("dead:", "job:", "attempts/"))]
