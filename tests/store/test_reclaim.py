"""reclaim: attempts whose lease ran out, after everybody had time to be heard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from redjob.calls import sweep
from redjob.codec import decode_stub
from redjob.errors import Grace
from redjob.model import JobState
from tests.support.dump import GONE, Expiring, Journaled, changes
from tests.support.ground import LEASE_MS
from tests.support.seed import VERDICT, past_json
from tests.support.world import CRASHED

if TYPE_CHECKING:
    from tests.support.seed import Job
    from tests.support.world import World

SILENCE_MS = 10_000


def expired(world: World, **given: Any) -> Job:
    """A running job whose lease is over, in front of a sweeper that may act."""
    job = world.running(lease_ms=1, **given)
    world.watch()
    return job


def test_a_sweeper_that_was_not_heard_of_must_wait_a_lease(world: World) -> None:
    job = world.running(lease_ms=1)
    world.advance(1)
    before = world.dump()
    with pytest.raises(Grace) as caught:
        world.reclaim(job)
    until_ms = world.now_ms + LEASE_MS
    assert caught.value.until_ms == until_ms
    assert changes(before, world.check()) == {
        "meta/grace_until": str(until_ms),
        "meta/seen_ms": str(world.now_ms),
    }


def test_the_grace_is_not_prolonged_by_asking_and_ends(world: World) -> None:
    job = world.running(lease_ms=1)
    for _ in range(LEASE_MS // 5000):
        with pytest.raises(Grace):
            world.reclaim(job)
        world.advance(5000)
    assert world.reclaim(job) == "M"


def test_a_silence_begins_the_grace_anew(world: World) -> None:
    job = expired(world)
    world.advance(SILENCE_MS)
    assert world.reclaim(job, outcome="R") == "M"
    other = world.running(lease_ms=1)
    world.advance(SILENCE_MS + 1)
    with pytest.raises(Grace):
        world.reclaim(other)
    assert world.heartbeat(other) == "H"  # that is what the grace is for


def test_requeue_and_reclaim_hear_of_each_other(world: World) -> None:
    job = expired(world)
    waiting = world.dispatched()
    world.advance(SILENCE_MS)
    assert world.requeue((waiting, "")) == "A"
    world.advance(SILENCE_MS)
    assert world.reclaim(job) == "M"


def test_a_sweeper_without_work_is_heard_of(world: World) -> None:
    world.watch()
    world.advance(1)
    before = world.dump()
    world.run(sweep.reclaim(world.part, [], grace_ms=LEASE_MS, tag=world.tag()))
    assert changes(before, world.check()) == {"meta/seen_ms": str(world.now_ms)}


def test_a_grace_of_the_fence_holds_a_sweeper_too(world: World) -> None:
    job = expired(world)
    world.redis.hset(world.part.meta, "grace_until", world.now_ms + 1)
    with pytest.raises(Grace):
        world.reclaim(job)
    world.advance(1)
    assert world.reclaim(job) == "M"


def test_a_live_lease_is_untouched_to_its_last_millisecond(world: World) -> None:
    world.watch()
    job = world.running(lease_ms=100)
    world.advance(99)
    before = world.dump()
    assert world.reclaim(job) == "L"
    assert changes(before, world.check()) == {"meta/seen_ms": str(world.now_ms)}
    world.advance(1)
    assert world.reclaim(job) == "M"


def test_each_job_is_answered_for_itself(world: World) -> None:
    moved, lives, lost, asked = (world.running(lease_ms=1) for _ in range(4))
    world.watch()
    world.heartbeat(lives)
    world.redis.delete(world.part.job(lost.id))
    world.cancel(asked)
    assert world.reclaim(moved, lives, lost, asked) == "MLNK"
    entry = world.dump()[f"journal/{world.seq}"]
    assert isinstance(entry, Journaled)
    assert [line[:36] for line in entry.lines] == [moved.id, asked.id]
    assert world.state_of(lost) == JobState.RUNNING  # stays, for its record to be restored


def test_a_crash_waits_its_backoff_before_the_next_attempt(world: World) -> None:
    job = expired(world)
    assert world.reclaim(job, delay_ms=4000) == "M"
    state = world.check()
    assert state[f"due:q/{job.id}"] == world.now_ms + 4000
    world.advance(3999)
    assert world.fire(job).codes == "E"
    world.advance(1)
    assert world.fire(job).codes == "D"
    (start,) = world.take().starts
    assert start.attempts.startswith(b"1 ")


def test_the_last_crash_is_the_death_of_a_job(world: World) -> None:
    job = expired(world)
    assert world.reclaim(job, outcome="F", past=CRASHED, result_ttl_ms=5000) == "M"
    state = world.check()
    assert state[f"dead:q/{job.id}"] == world.now_ms
    assert str(state[f"attempts/{job.id}"]).endswith(past_json("F", CRASHED))
    assert state[f"result:{job.id}"] == Expiring(VERDICT.decode())
    assert f"job:{job.id}" in state


def test_a_dying_job_dies_although_a_cancel_was_asked(world: World) -> None:
    job = expired(world)
    world.cancel(job)
    assert world.reclaim(job, outcome="F", past=CRASHED) == "M"
    assert world.state_of(job) == JobState.FAILED
    world.check()


def test_a_cancelled_keyed_job_leaves_its_stub(world: World) -> None:
    job = expired(world, key="k")
    world.cancel(job)
    assert world.reclaim(job, stub=job.stub(JobState.CANCELLED)) == "K"
    assert decode_stub(world.locate(job).doc).state == JobState.CANCELLED
    world.check()


def test_progress_goes_with_the_attempt(world: World) -> None:
    job = world.running()
    world.heartbeat(job, progress=b"{}")
    world.advance(LEASE_MS)
    world.watch()
    assert world.reclaim(job) == "M"
    assert world.locate(job).progress == b""
    world.check()


@pytest.mark.parametrize("run", [b"2 worker1", b"1 another", b""], ids=["attempt", "worker", ""])
def test_an_attempt_that_is_not_the_one_that_was_read_is_left_alone(
    world: World, run: bytes
) -> None:
    job = expired(world)
    before = world.dump()
    assert world.reclaim(job, run=run) == "L"
    assert changes(before, world.check()) == {}


def test_what_does_not_run_is_left_alone(world: World) -> None:
    waiting, ended = world.dispatched(), world.ended()
    world.watch()
    before = world.dump()
    assert world.reclaim(waiting, ended, run=b"") == "LL"
    assert changes(before, world.check()) == {}


def test_half_a_lease_is_ended_whichever_half_is_left(world: World) -> None:
    """A damaged partition: only the score, or only the field."""
    only_lease, only_run = expired(world), expired(world)
    world.redis.hdel(world.part.runs, only_lease.id)
    world.redis.zrem(world.part.running, only_run.id)
    assert world.reclaim(only_lease, run=b"") == "M"
    assert world.reclaim(only_run) == "M"
    state = world.check()
    assert {str(state[f"attempts/{job.id}"])[:2] for job in (only_lease, only_run)} == {"1 "}


def test_those_who_wait_are_told_of_a_death_and_of_a_cancel(world: World) -> None:
    dying, asked, again = (world.running(lease_ms=1) for _ in range(3))
    world.watch()
    world.redis.set(world.part.waiters, "1", px=60_000)
    world.cancel(asked)
    world.reclaim(dying, outcome="F", past=CRASHED)
    world.reclaim(asked, again)
    told = [
        (fields[b"id"].decode(), fields[b"state"])
        for _, fields in world.redis.xrange(world.part.done)
    ]
    assert told == [(dying.id, b"F"), (asked.id, b"K")]


def test_the_worker_that_was_taken_for_dead_is_told_so(world: World) -> None:
    job = expired(world)
    world.reclaim(job)
    assert world.heartbeat(job) == "L"
    assert world.finish(job, "R") == "L"
    world.check()


def test_several_queues_in_one_call(world: World) -> None:
    first, second = world.running(lease_ms=1), world.running(lease_ms=1, queue="other")
    world.watch()
    before = world.dump()
    assert world.reclaim(first, second) == "MM"
    changed = changes(before, world.check())
    assert {f"due:q/{first.id}", f"due:other/{second.id}"} <= set(changed)
    assert changed[f"runs/{second.id}"] is GONE
