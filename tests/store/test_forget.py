"""forget: tenants whose turn is over leave the flow of a queue, and no share changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redjob.calls import sweep
from tests.support.dump import changes
from tests.support.seed import QUEUE

if TYPE_CHECKING:
    from tests.support.world import World


def forget(world: World, *fields: str) -> int:
    return world.run(sweep.forget(world.part, QUEUE, fields)).dropped


def test_only_tenants_whose_last_job_has_had_its_turn_are_forgotten(world: World) -> None:
    over, waits = world.ready(tenant="over"), world.ready(tenant="waits")
    world.ready(tenant="waits")
    world.release(over, waits)
    assert forget(world, "t:over", "t:waits", "t:unknown") == 1
    state = world.check()
    assert ("flow:q/t:over" in state, "flow:q/t:waits" in state) == (False, True)


def test_a_damaged_field_stays(world: World) -> None:
    world.release(world.ready())
    world.redis.hset(world.part.queue(QUEUE).flow, "t:odd", "not a number")
    before = world.dump()
    assert forget(world, "t:odd") == 0
    assert changes(before, world.check()) == {}
