"""heartbeat: leases that go on, what a worker is told, what it leaves, and jobs after a rollback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from redjob.calls import owner, work
from tests.support.dump import Journaled, changes
from tests.support.ground import LEASE_MS
from tests.support.seed import QUEUE
from tests.support.world import WORKER

if TYPE_CHECKING:
    from redjob.calls.work import Beat
    from tests.support.seed import Job
    from tests.support.world import World

CHECKPOINT = b'{"checkpoint":{"page":7}}'


def heartbeat(world: World, *beats: Beat, worker: str = WORKER) -> str:
    return world.run(
        work.heartbeat(world.part, worker, beats, lease_ms=LEASE_MS, tag=world.tag())
    ).codes


def taken_then_rolled_back(world: World, job: Job) -> None:
    """The worker runs the job, and Redis has forgotten that."""
    saved = world.save()
    assert [start.id for start in world.take().starts] == [job.id]
    world.restore(saved)


def test_leases_of_several_queues_go_on_and_nothing_else_changes(world: World) -> None:
    first, second = world.running(), world.running(queue="other")
    world.advance(20_000)
    before = world.dump()
    assert heartbeat(world, first.beat(), second.beat()) == "HH"
    until_ms = world.now_ms + LEASE_MS
    assert changes(before, world.check()) == {
        f"running/{first.id}": until_ms,
        f"running/{second.id}": until_ms,
    }


def test_a_lease_that_is_over_goes_on_as_long_as_nobody_has_ended_it(world: World) -> None:
    job = world.running()
    world.advance(LEASE_MS * 3)
    assert world.heartbeat(job) == "H"
    world.watch()
    assert world.reclaim(job) == "L"


def test_each_job_is_answered_for_itself(world: World) -> None:
    mine, ended, asked = world.running(), world.running(), world.running()
    world.finish(ended, "C")
    world.cancel(asked)
    assert heartbeat(world, mine.beat(), ended.beat(), asked.beat()) == "HLQ"
    world.check()


def test_a_cancel_is_told_with_each_beat_and_the_lease_goes_on(world: World) -> None:
    job = world.running()
    world.cancel(job)
    world.advance(1000)
    assert [world.heartbeat(job) for _ in range(2)] == ["Q", "Q"]
    assert world.check()[f"running/{job.id}"] == world.now_ms + LEASE_MS


def test_an_attempt_that_somebody_ended_is_lost(world: World) -> None:
    job = world.running(lease_ms=1)
    world.watch()
    assert world.reclaim(job) == "M"
    before = world.dump()
    assert world.heartbeat(job) == "L"  # due again, with one attempt more than before its start
    assert changes(before, world.check()) == {}


@pytest.mark.parametrize(("attempt", "worker"), [(1, "another"), (2, WORKER), (0, WORKER)], ids=str)
def test_another_worker_or_attempt_is_lost_and_leaves_nothing(
    world: World, attempt: int, worker: str
) -> None:
    job = world.running()
    before = world.dump()
    beat = job.beat(attempt, progress=b"{}", past=CHECKPOINT)
    assert heartbeat(world, beat, worker=worker) == "L"
    assert changes(before, world.check()) == {}


def test_progress_is_kept_without_a_journal_entry_until_the_attempt_ends(world: World) -> None:
    job = world.running()
    before = world.dump()
    assert world.heartbeat(job, progress=b'{"done":1}') == "H"
    assert changes(before, world.check()) == {f"progress/{job.id}": '{"done":1}'}
    assert world.heartbeat(job, progress=b'{"done":2}') == "H"
    assert world.locate(job).progress == b'{"done":2}'
    world.finish(job, "R")
    world.check()
    assert world.locate(job).progress == b""


def test_a_checkpoint_is_kept_for_the_next_attempt_and_journaled(world: World) -> None:
    job, tag = world.running(attempt=2), world.tag()
    call = work.heartbeat(
        world.part, WORKER, [job.beat(2, past=CHECKPOINT)], lease_ms=LEASE_MS, tag=tag
    )
    reply, changed = world.do(call)
    assert reply.codes == "H"
    line = job.line(f"T 2 0  {CHECKPOINT.decode()}")
    journaled = world.journaled("heartbeat", tag, line, worker=WORKER)
    assert changed == journaled | {f"attempts/{job.id}": f"1 {tag} {CHECKPOINT.decode()}"}
    world.advance(LEASE_MS + 1)
    world.watch()
    assert world.reclaim(job, run=b"2 worker1", attempt=2) == "M"


@pytest.mark.parametrize("place", ["stream", "due", "ready"])
def test_a_job_that_a_rollback_put_back_is_taken_over_again(world: World, place: str) -> None:
    if place == "stream":
        job = world.dispatched()
        taken_then_rolled_back(world, job)
    elif place == "due":
        job = world.overdue()
        saved = world.save()
        world.fire(job)
        world.take()
        world.restore(saved)
    else:
        job = world.ready()
        saved = world.save()
        world.release(job)
        world.take()
        world.restore(saved)
    assert world.heartbeat(job) == "A"
    assert world.locate(job).run == b"1 worker1"
    assert world.take().starts == []
    assert world.finish(job, "C") == "M"
    world.check()


def test_what_is_taken_over_may_bring_progress_and_a_checkpoint(world: World) -> None:
    job = world.dispatched()
    taken_then_rolled_back(world, job)
    assert world.heartbeat(job, progress=b"{}", past=CHECKPOINT) == "A"
    entry = world.check()[f"journal/{world.seq}"]
    assert isinstance(entry, Journaled)
    assert entry.lines == (job.line(f"T 1 0  {CHECKPOINT.decode()}"),)  # one line for both
    assert world.locate(job).attempts.startswith(b"0 ")


def test_a_later_attempt_is_taken_over_too(world: World) -> None:
    job = world.retrying(delay_ms=0)
    saved = world.save()
    world.run(owner.fire(world.part, QUEUE, [job.id], tag=world.tag()))
    world.take()
    world.restore(saved)
    assert world.heartbeat(job, 1) == "L"
    assert world.heartbeat(job, 3) == "L"
    assert world.heartbeat(job, 2) == "A"
    world.check()


def test_another_life_of_the_same_key_is_not_taken_over(world: World) -> None:
    job = world.dispatched(key="k")
    taken_then_rolled_back(world, job)
    world.cancel(job)
    world.advance(5)
    again = world.dispatched(key="k")
    assert again.id == job.id
    assert world.heartbeat(job) == "L"
    assert world.state_of(again) == "DISPATCHED"


def test_a_job_that_ended_after_the_rollback_is_lost(world: World) -> None:
    job = world.dispatched()
    taken_then_rolled_back(world, job)
    world.cancel(job)
    assert world.heartbeat(job) == "L"
    world.check()


def test_a_job_that_another_worker_took_after_the_rollback_is_lost(world: World) -> None:
    job = world.dispatched()
    taken_then_rolled_back(world, job)
    world.take(worker="another")
    assert world.heartbeat(job) == "L"
    assert world.locate(job).run == b"1 another"


def test_a_dead_job_is_not_taken_over(world: World) -> None:
    job = world.dead()
    assert [world.heartbeat(job, attempt) for attempt in (1, 2)] == ["L", "L"]
    world.check()


def test_a_job_that_nobody_knows_is_lost(world: World) -> None:
    assert world.heartbeat(world.job()) == "L"
