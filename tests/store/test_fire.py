"""fire: from due to the stream, never early, and to ready where there is no room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redjob.calls import owner
from redjob.calls.owner import Parked
from tests.support.dump import Journaled, changes
from tests.support.seed import QUEUE

if TYPE_CHECKING:
    from tests.support.world import World


def test_a_job_fires_at_its_time_and_not_a_millisecond_before(world: World) -> None:
    job = world.scheduled(in_ms=100)
    world.advance(99)
    before = world.dump()
    fired = world.fire(job)
    assert (fired.codes, fired.earliest_ms) == ("E", job.run_at_ms)
    assert changes(before, world.check()) == {}
    world.advance(1)
    assert world.fire(job).codes == "D"
    world.check()


def test_each_job_is_answered_for_itself(world: World) -> None:
    early, gone = world.scheduled(), world.scheduled(in_ms=1)
    world.cancel(gone)
    lost = world.scheduled(in_ms=1)
    due = world.overdue()
    world.redis.delete(world.part.job(lost.id))
    assert world.fire(early, gone, due, lost).codes == "EADN"


def test_a_job_without_record_stays_where_it_is_to_be_restored(world: World) -> None:
    lost = world.overdue()
    world.redis.delete(world.part.job(lost.id))
    world.fire(lost)
    assert f"due:q/{lost.id}" in world.dump()


def test_two_owners_that_fire_the_same_jobs_start_them_once(world: World) -> None:
    due = [world.scheduled(in_ms=1) for _ in range(5)]
    world.advance(1)
    assert world.fire(*due[:3]).codes == "DDD"
    assert world.fire(*due).codes == "AAADD"
    world.check()
    assert len(world.take(10).starts) == 5


def test_a_job_that_was_rescheduled_fires_at_its_new_time_only(world: World) -> None:
    job = world.overdue()
    world.redis.zadd(world.part.queue(QUEUE).due, {job.id: world.now_ms + 50})
    assert world.fire(job).codes == "E"


def test_the_reply_tells_the_next_time_and_queues_is_put_right(world: World) -> None:
    due, later = world.scheduled(in_ms=1), world.scheduled(in_ms=5000)
    world.advance(1)
    fired = world.fire(due)
    assert fired.earliest_ms == later.run_at_ms
    assert world.check()["queues/q"] == later.run_at_ms
    world.cancel(later)
    call = owner.fire(world.part, QUEUE, [], tag=world.tag())
    assert world.run(call).earliest_ms is None
    assert world.check()["queues/q"] == float("inf")


def test_a_full_batch_keeps_its_order(world: World) -> None:
    due = [world.scheduled(in_ms=1) for _ in range(500)]
    world.advance(1)
    assert world.fire(*due).codes == "D" * 500
    world.check()
    assert [start.id for start in world.take(500).starts] == [job.id for job in due]


def test_what_finds_no_room_is_said_and_stays_in_due(world: World) -> None:
    due = [world.scheduled(in_ms=1) for _ in range(3)]
    world.advance(1)
    world.limit(QUEUE, 2)
    fired = world.fire(*due)
    assert (fired.codes, fired.depth) == ("DDF", 2)
    assert f"due:q/{due[2].id}" in world.check()


def test_nobody_overtakes_ready(world: World) -> None:
    world.ready()
    assert world.fire(world.overdue()).codes == "F"


def test_parking_sends_on_what_fits_by_then_and_parks_the_rest(world: World) -> None:
    due = [world.scheduled(in_ms=1) for _ in range(3)]
    world.advance(1)
    world.limit(QUEUE, 1)
    before = world.dump()
    assert world.park(*due).codes == "DRR"
    after = world.check()
    entry = changes(before, after)[f"journal/{world.seq}"]
    assert isinstance(entry, Journaled)
    assert entry.lines == (due[0].line("D"), due[1].line("R"), due[2].line("R"))
    assert {name for name in after if name.startswith("ready:")} == {
        f"ready:q/{job.id}" for job in due[1:]
    }


def test_parking_looks_at_the_time_and_the_score_again(world: World) -> None:
    early, moved, gone = world.scheduled(), world.overdue(), world.scheduled(in_ms=1)
    world.cancel(gone)
    world.redis.zadd(world.part.queue(QUEUE).due, {moved.id: world.now_ms - 10})
    world.limit(QUEUE, 0)
    assert world.park(early, moved, gone).codes == "ECA"
    world.check()


def test_parking_twice_parks_once(world: World) -> None:
    job = world.overdue()
    world.limit(QUEUE, 0)
    assert world.park(job).codes == "R"
    before = world.dump()
    assert world.park(job).codes == "A"
    assert changes(before, world.check()) == {}


def test_parked_jobs_stand_by_priority(world: World) -> None:
    low, high = world.overdue(priority=8), world.overdue(priority=2)
    world.limit(QUEUE, 0)
    seen = [Parked(job.id, job.run_at_ms, job.priority, job.tenant) for job in (low, high)]
    world.run(owner.park(world.part, QUEUE, seen, tag=world.tag()))
    order = world.redis.zrange(world.part.queue(QUEUE).ready, 0, -1)
    assert [job_id.decode() for job_id in order] == [high.id, low.id]
