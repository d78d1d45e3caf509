"""Who counts as a sweeper: only its own calls say that one is there, and only they begin a grace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from redjob.calls import sweep
from redjob.errors import Grace

if TYPE_CHECKING:
    from tests.support.seed import Job
    from tests.support.world import World


def in_no_place(world: World) -> Job:
    """A job that a worker met as a stale entry."""
    job = world.dispatched()
    world.redis.hdel(world.part.dispatched, job.id)
    return job


def by_worker(world: World, job: Job) -> str:
    call = sweep.requeue(world.part, job.queue, [(job.id, "")], grace_ms=None, tag=world.tag())
    return world.run(call).codes


def seen(world: World) -> object:
    return world.redis.hmget(world.part.meta, "seen_ms", "grace_until")


def test_a_worker_mends_what_it_met_where_no_sweeper_is(world: World) -> None:
    assert by_worker(world, in_no_place(world)) == "D"
    assert seen(world) == [None, None]


def test_a_worker_does_not_make_a_sweeper_look_alive(world: World) -> None:
    world.watch()
    before = seen(world)
    world.advance(60_000)
    assert by_worker(world, in_no_place(world)) == "D"
    assert seen(world) == before
    with pytest.raises(Grace):  # so that the next sweeper knows how long nobody looked
        world.requeue((in_no_place(world), ""))


def test_a_worker_waits_for_a_grace_that_a_sweeper_or_an_owner_has_begun(world: World) -> None:
    job = in_no_place(world)
    with pytest.raises(Grace) as caught:
        world.requeue((job, ""))
    with pytest.raises(Grace) as again:
        by_worker(world, job)
    assert again.value.until_ms == caught.value.until_ms
    world.now_ms = caught.value.until_ms
    assert by_worker(world, job) == "D"
