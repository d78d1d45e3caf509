"""enqueue: what is accepted where, what is known already, and what back-pressure holds back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from redjob.calls import jobs, work
from redjob.calls.jobs import BATCH
from redjob.codec import decode_stub
from redjob.model import JobState
from tests.support.dump import Journaled, changes
from tests.support.ground import LEASE_MS
from tests.support.seed import QUEUE, STUB_TTL_MS

if TYPE_CHECKING:
    from redjob.calls.jobs import Enqueued
    from tests.support.seed import Job
    from tests.support.world import World


def enqueue(world: World, *new: Job, tag: str | None = None, again: bool = False) -> Enqueued:
    call = jobs.enqueue(
        world.part, QUEUE, "default", 5, [job.new for job in new], tag or world.tag()
    )
    if again:
        call.args[call.again_at] = "1"
    return world.run(call)


def test_a_batch_is_answered_job_by_job(world: World) -> None:
    known = world.dispatched()
    now, later = world.job(), world.job(run_at_ms=world.now_ms + 1)
    reply = enqueue(world, later, known, now)
    assert (reply.codes, reply.found) == ("SED", {1: known.doc})
    world.check()


def test_a_time_that_has_come_is_now_and_one_millisecond_later_is_not(world: World) -> None:
    at = world.now_ms
    assert enqueue(world, world.job(run_at_ms=at), world.job(run_at_ms=at + 1)).codes == "DS"
    assert enqueue(world, world.job(run_at_ms=at - 5000)).codes == "D"


@pytest.mark.parametrize("run_at_in_ms", [0, 60_000], ids=["now", "later"])
def test_a_full_batch_is_one_call_and_one_journal_entry(world: World, run_at_in_ms: int) -> None:
    at = world.now_ms + run_at_in_ms if run_at_in_ms else 0
    new = [world.job(run_at_ms=at) for _ in range(BATCH)]
    code = "S" if run_at_in_ms else "D"
    assert enqueue(world, *new).codes == code * BATCH
    state = world.check()
    entry = state["journal/1"]
    assert isinstance(entry, Journaled)
    assert [line[:36] for line in entry.lines] == [job.id for job in new]
    assert state.get("bell:q", 0) == (0 if run_at_in_ms else 32)  # tokens are capped


def test_the_same_key_finds_the_job_as_long_as_it_lives(world: World) -> None:
    first = world.scheduled(key="welcome:u1")
    second = world.job(key="welcome:u1", payload=b'{"other":1}')
    before = world.dump()
    reply = enqueue(world, second)
    assert (reply.codes, reply.found) == ("E", {0: first.doc})
    assert set(changes(before, world.check())) <= {
        "journal/2",
        "meta/seq",
        "meta/tag",
    }


def test_the_same_key_finds_the_stub_of_a_finished_job_until_its_window_ends(world: World) -> None:
    job = world.ended(key="welcome:u1", stub=True)
    ttl_ms = world.redis.pttl(world.part.job(job.id))
    assert STUB_TTL_MS - 10_000 < ttl_ms <= STUB_TTL_MS
    reply = enqueue(world, world.job(key="welcome:u1"))
    assert reply.codes == "E"
    assert decode_stub(reply.found[0]).state == JobState.COMPLETED


def test_after_its_window_a_key_starts_a_new_life_without_the_old_tombstone(world: World) -> None:
    job = world.ended(key="welcome:u1", stub=True)
    world.redis.delete(world.part.job(job.id))
    new = world.job(key="welcome:u1")
    assert new.id == job.id
    assert enqueue(world, new).codes == "D"
    assert f"finished/{job.id}" not in world.check()


def test_a_repeat_that_comes_when_the_job_has_ended_does_not_start_it_again(world: World) -> None:
    job, tag = world.job(), world.tag()
    enqueue(world, job, tag=tag)
    world.begin(job)
    world.finish(job, "C")
    before = world.dump()
    assert enqueue(world, job, tag=tag, again=True).codes == "T"
    after = world.check()
    assert set(changes(before, after)) == {f"journal/{world.seq}", "meta/seq", "meta/tag"}


def test_a_repeat_accepts_what_the_first_try_did_not(world: World) -> None:
    known, new = world.job(), world.job()
    tag = world.tag()
    enqueue(world, known, tag=tag)
    assert enqueue(world, known, new, tag=tag, again=True).codes == "ED"
    world.check()


def test_beyond_the_depth_limit_jobs_wait_in_ready(world: World) -> None:
    world.limit(QUEUE, 3)
    new = [world.job() for _ in range(5)]
    assert enqueue(world, *new).codes == "DDDRR"
    state = world.check()
    assert [name for name in state if name.startswith("ready:q/")] == [
        f"ready:q/{job.id}" for job in new[3:]
    ]


def test_nobody_overtakes_a_job_that_waits_in_ready(world: World) -> None:
    world.ready()  # there is room again, but it was there first
    assert enqueue(world, world.job()).codes == "R"


def test_a_limit_counts_per_queue_and_wins_over_the_default(world: World) -> None:
    world.redis.hset(world.part.meta, "depth_limit", "1")
    world.limit("wide", 2)
    wide = [world.job(queue="wide") for _ in range(3)]
    assert world.enqueue(*wide) == "DDR"
    assert world.enqueue(world.job(), world.job()) == "DR"
    world.limit(QUEUE, "none")
    assert world.enqueue(world.job(queue="other")) == "D"


def test_depth_goes_down_when_workers_take(world: World) -> None:
    world.limit(QUEUE, 2)
    assert enqueue(world, world.job(), world.job()).codes == "DD"
    world.take(1)
    assert enqueue(world, world.job(), world.job()).codes == "DR"


def test_jobs_in_due_do_not_count_as_depth(world: World) -> None:
    world.limit(QUEUE, 1)
    world.scheduled()
    assert enqueue(world, world.job()).codes == "D"


def test_with_postgres_the_journal_carries_the_record(world: World) -> None:
    world.redis.hset(world.part.meta, "postgres", "1")
    job = world.dispatched()
    entry = world.dump()["journal/1"]
    assert isinstance(entry, Journaled)
    assert entry.lines == (job.line(f"D 0 0 q {job.text}"),)


def test_a_record_with_line_feeds_is_one_line_in_the_journal(world: World) -> None:
    world.redis.hset(world.part.meta, "postgres", "1")
    job = world.job(payload=b'{"a":\n1}')
    world.enqueue(job)
    entry = world.dump()["journal/1"]
    assert isinstance(entry, Journaled)
    assert entry.lines == (job.line(f"D 0 0 q {job.text}").replace("\n", " "),)


def test_what_a_consumer_group_of_any_language_reads_is_all_that_it_needs(world: World) -> None:
    job = world.dispatched()
    stream = world.part.queue(QUEUE).stream
    (_, entries), *_ = world.redis.xreadgroup("workers", "theirs", {stream: ">"})
    assert entries[0][1] == {b"id": job.id.encode(), b"doc": job.doc}


def test_a_consumer_that_comes_late_finds_what_is_there_already(world: World) -> None:
    job = world.dispatched()
    assert [start.id for start in world.take(worker="born-later").starts] == [job.id]


def test_a_wrong_time_is_refused_before_anything_is_written(world: World) -> None:
    before = world.dump()
    call = jobs.enqueue(world.part, QUEUE, "default", 5, [world.job().new], "t")
    call.args[5] = "soon"
    with pytest.raises(Exception, match="script enqueue failed"):
        world.run(call)
    assert changes(before, world.dump()) == {}


def test_a_job_of_a_dead_one_with_the_same_key_is_the_dead_one(world: World) -> None:
    dead = world.dead(key="welcome:u1")
    assert enqueue(world, world.job(key="welcome:u1")).found == {0: dead.doc}


def test_a_token_wakes_a_worker_for_each_job_up_to_the_cap(world: World) -> None:
    assert (
        world.run(work.take(world.part, [QUEUE], "w", 1, lease_ms=LEASE_MS, tag="t")).starts == []
    )
    enqueue(world, *[world.job() for _ in range(3)])
    assert world.dump()["bell:q"] == 3
    enqueue(world, *[world.job() for _ in range(60)])
    assert world.dump()["bell:q"] == 32
    world.take(500)
    assert "bell:q" not in world.dump()
