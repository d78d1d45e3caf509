"""Every row of the table of states, driven against the Lua: what the call answers and all it changes.

Each row is also called twice: the repeat changes nothing and says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from redjob.calls import work
from redjob.model import TRANSITIONS
from tests.store import rows_running, rows_waiting
from tests.store.rows import DRIVERS
from tests.support.dump import Journaled

if TYPE_CHECKING:
    from tests.support.world import World

pytestmark = pytest.mark.server("valkey", "redis", "cluster")

REGISTERED = (rows_running, rows_waiting)  # by being imported


def code_of(reply: Any) -> str:
    """What a reply says of its one job: a letter, or for take the id."""
    if isinstance(reply, work.Taken):
        return " ".join(start.id for start in reply.starts)
    return str(reply.codes if hasattr(reply, "codes") else reply.code)


def name_of(row: tuple[Any, str, Any]) -> str:
    return f"{row[0]} {row[1]}"


def test_every_row_has_a_driver() -> None:
    assert set(DRIVERS) == {name_of(row) for row in TRANSITIONS}


@pytest.mark.parametrize("row", TRANSITIONS, ids=name_of)
def test_the_call_moves_the_job_and_changes_nothing_else(
    world: World, row: tuple[Any, str, Any]
) -> None:
    step = DRIVERS[name_of(row)](world)
    assert world.state_of(step.job) == row[0]
    tag = str(step.call.args[0])
    reply, changed = world.do(step.call)
    assert code_of(reply) == step.code
    journaled = world.journaled(step.op, tag, step.job.line(step.line), worker=step.worker)
    assert changed == step.changed | (journaled if step.op else {})
    assert world.state_of(step.job) == row[2]


@pytest.mark.parametrize("row", TRANSITIONS, ids=name_of)
def test_the_call_repeated_says_so_and_changes_nothing(
    world: World, row: tuple[Any, str, Any]
) -> None:
    step = DRIVERS[name_of(row)](world)
    world.do(step.call)
    if step.call.again_at >= 0:
        step.call.args[step.call.again_at] = "1"
    reply, changed = world.do(step.call)
    assert code_of(reply) == step.again
    if (
        step.journal_again
    ):  # a repeated enqueue is acknowledged by an entry of its own, without jobs
        tag = str(step.call.args[0])
        entry = Journaled("again", tag, tag, world.now_ms, ())
        assert changed == {f"journal/{world.seq}": entry, "meta/seq": str(world.seq)}
    else:
        assert changed == {}
    assert world.state_of(step.job) == row[2]
