"""release: out of ready as there is room, by priority, then fairly between tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.dump import changes
from tests.support.seed import QUEUE

if TYPE_CHECKING:
    from tests.support.seed import Job
    from tests.support.world import World


def park_all(world: World, new: list[Job]) -> None:
    world.limit(QUEUE, 0)
    for job in new:
        assert world.enqueue(job) == "R"


def release_all(world: World, by_id: dict[str, Job]) -> list[Job]:
    """Release one after the other, as an owner reads the head of ready; the order they come in."""
    world.limit(QUEUE, "none")
    out: list[Job] = []
    while found := world.redis.zrange(world.part.queue(QUEUE).ready, 0, 0):
        job = by_id[found[0].decode()]
        assert world.release(job) == "D"
        out.append(job)
    return out


def in_order(world: World, new: list[Job]) -> list[Job]:
    park_all(world, new)
    return release_all(world, {job.id: job for job in new})


def test_each_job_is_answered_for_itself(world: World) -> None:
    first, lost, last = (world.job() for _ in range(3))
    park_all(world, [first, lost, last])
    world.redis.delete(world.part.job(lost.id))
    world.limit(QUEUE, 1)
    absent = world.job()
    assert world.release(first, lost, absent, last) == "DNAF"


def test_no_more_leave_than_there_is_room_for(world: World) -> None:
    waiting = [world.job() for _ in range(5)]
    park_all(world, waiting)
    world.limit(QUEUE, 2)
    assert world.release(*waiting) == "DDFFF"
    before = world.check()
    assert world.release(*waiting[2:]) == "FFF"
    assert changes(before, world.check()) == {}
    world.take(1)
    assert world.release(*waiting[2:]) == "DFF"
    world.check()


def test_priority_comes_before_the_order_of_arrival(world: World) -> None:
    given = [world.job(priority=priority) for priority in (9, 5, 0, 5, 2)]
    assert [job.priority for job in in_order(world, given)] == [0, 2, 5, 5, 9]


def test_jobs_of_one_tenant_and_priority_come_out_as_they_came_in(world: World) -> None:
    given = [world.job() for _ in range(20)]
    assert in_order(world, given) == given


def test_a_tenant_with_ten_times_the_jobs_does_not_get_ten_times_the_share(world: World) -> None:
    big = [world.job(tenant="big") for _ in range(100)]
    small = [world.job(tenant="small") for _ in range(10)]
    order = [job.tenant for job in in_order(world, big + small)]
    assert order[:20].count("small") == 10
    assert all(
        {first, second} == {"big", "small"}
        for first, second in zip(order[:20:2], order[1:20:2], strict=True)
    )
    assert order[20:] == ["big"] * 90


def test_a_tenant_that_comes_late_shares_from_now_on_without_arrears(world: World) -> None:
    big = [world.job(tenant="big") for _ in range(40)]
    park_all(world, big)
    world.limit(QUEUE, "none")
    world.release(*big[:20])
    small = [world.job(tenant="small") for _ in range(10)]
    for job in small:
        assert world.enqueue(job) == "R"  # ready is not empty
    order = [job.tenant for job in release_all(world, {job.id: job for job in big + small})]
    assert order[:20].count("small") == 10  # not all ten first: what it did not use is gone
    assert order[:4].count("small") == 2


def test_a_released_job_is_found_by_workers_and_rings_for_them(world: World) -> None:
    job = world.ready()
    assert world.release(job) == "D"
    assert world.check()["bell:q"] == 1
    assert [start.id for start in world.take().starts] == [job.id]
