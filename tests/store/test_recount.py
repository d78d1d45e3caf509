"""recount: a queue's depth put right, and pending entries that no job needs settled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redjob.calls import sweep
from redjob.model import JobState
from tests.support.dump import GONE, changes
from tests.support.seed import QUEUE

if TYPE_CHECKING:
    from redjob.calls.sweep import Recounted
    from tests.support.world import World


def recount(world: World, *entries: str) -> Recounted:
    return world.run(sweep.recount(world.part, QUEUE, entries))


def test_a_depth_that_is_right_changes_nothing(world: World) -> None:
    world.dispatched()
    before = world.dump()
    found = recount(world)
    assert (found.before, found.depth, found.settled) == (1, 1, 0)
    assert changes(before, world.check()) == {}


def test_a_depth_that_is_wrong_is_set_to_what_the_stream_holds(world: World) -> None:
    world.dispatched()
    gone = world.dispatched()
    world.cancel(gone)
    world.redis.xdel(
        world.part.queue(QUEUE).stream,
        world.redis.xrevrange(world.part.queue(QUEUE).stream, count=1)[0][0],
    )
    found = recount(world)
    assert (found.before, found.depth) == (2, 1)
    assert world.check()["flow:q/depth"] == "1"


def test_a_queue_without_a_stream_has_no_depth(world: World) -> None:
    world.redis.hset(world.part.queue(QUEUE).flow, "depth", 7)
    found = recount(world)
    assert (found.before, found.depth) == (7, 0)


def test_pending_entries_that_no_job_names_are_settled(world: World) -> None:
    cancelled, alive = world.dispatched(), world.dispatched()
    stale, named = (entry for entry, _ in world.read())
    world.cancel(cancelled)
    before = world.dump()
    found = recount(world, stale, named)
    assert (found.before, found.depth, found.settled) == (2, 1, 1)
    assert changes(before, world.check()) == {
        f"stream:q/{world.dump.entry(stale)}": GONE,
        "stream:q/pending": (world.dump.entry(named),),
        "flow:q/depth": "1",
    }
    assert world.state_of(alive) == JobState.DISPATCHED


def test_pending_entries_that_are_not_ours_or_gone_are_settled(world: World) -> None:
    world.dispatched()
    stream = world.part.queue(QUEUE).stream
    world.redis.xadd(stream, {"hello": "world"})
    entries = [
        row[0].decode() for row in world.redis.xreadgroup("workers", "c", {stream: ">"})[0][1]
    ]
    assert recount(world, entries[1], "1-1").depth == 1
    world.check()


def test_a_lost_group_is_no_obstacle(world: World) -> None:
    world.dispatched()
    world.redis.xgroup_destroy(world.part.queue(QUEUE).stream, "workers")
    assert recount(world, "1-1").depth == 1
