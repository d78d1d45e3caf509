"""A server at maxmemory: what was accepted goes on and makes room, new work is refused, nothing is half done."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from redjob.calls import owner, sweep, work
from redjob.calls.owner import Committed, Fence
from redjob.errors import StoreFull
from redjob.model import TRANSITIONS
from tests.store import rows_running, rows_waiting
from tests.store.rows import DRIVERS
from tests.store.test_transitions import code_of, name_of
from tests.support.dump import GONE, changes
from tests.support.ground import LEASE_MS
from tests.support.seed import QUEUE
from tests.support.world import WORKER, World

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.support.servers import OwnServerFactory

REGISTERED = (rows_running, rows_waiting)  # by being imported
GOES_ON = {"take", "begin", "heartbeat", "finish", "cancel", "reclaim"}
Row = tuple[Any, str, Any]


def goes_on(row: Row) -> bool:
    return row[1].split(" ")[0] in GOES_ON


_goes_on = pytest.mark.parametrize("row", [row for row in TRANSITIONS if goes_on(row)], ids=name_of)
_waits = pytest.mark.parametrize(
    "row", [row for row in TRANSITIONS if not goes_on(row)], ids=name_of
)


@contextmanager
def full(world: World) -> Generator[None]:
    """The server has no memory left; it is this process's own, and tests run one after the other."""
    world.redis.config_set("maxmemory", 1)
    try:
        yield
    finally:
        world.redis.config_set("maxmemory", 0)


@_goes_on
def test_what_was_accepted_goes_on_as_ever(world: World, row: Row) -> None:
    step = DRIVERS[name_of(row)](world)
    tag = str(step.call.args[0])
    with full(world):
        reply, changed = world.do(step.call)
    assert code_of(reply) == step.code
    journaled = world.journaled(step.op, tag, step.job.line(step.line), worker=step.worker)
    assert changed == step.changed | (journaled if step.op else {})


@_waits
def test_new_work_is_refused_and_nothing_of_it_is_done(world: World, row: Row) -> None:
    step = DRIVERS[name_of(row)](world)
    before = world.dump()
    with full(world), pytest.raises(StoreFull):
        world.run(step.call)
    assert changes(before, world.check()) == {}
    reply, _ = world.do(step.call)
    assert code_of(reply) == step.code


@pytest.mark.parametrize("in_ms", [0, 60_000], ids=["now", "later"])
def test_a_batch_is_refused_as_a_whole(world: World, in_ms: int) -> None:
    at = world.now_ms + in_ms if in_ms else 0
    before = world.dump()
    with full(world), pytest.raises(StoreFull):
        world.enqueue(*[world.job(run_at_ms=at) for _ in range(100)])
    assert changes(before, world.check()) == {}


# Redis looks at the flags of a function before it runs: enqueue has none, and is refused as a whole.
@pytest.mark.parametrize("form", ["scripts"])
def test_who_repeats_what_was_accepted_is_told_so(world: World) -> None:
    job, tag = world.job(), world.tag()
    world.enqueue(job, tag=tag)
    with full(world):
        assert world.enqueue(job, tag=tag) == "E"
    world.check()


def test_a_take_from_a_stream_without_group_loses_nothing(world: World) -> None:
    job = world.dispatched()
    world.redis.xgroup_destroy(world.part.queue(QUEUE).stream, "workers")
    with full(world):
        taken = [start.id for _ in range(2) for start in world.take().starts]
    assert taken == [job.id]
    world.check()


def test_a_running_job_can_be_asked_to_stop_and_leave_a_checkpoint(world: World) -> None:
    job = world.running()
    with full(world):
        assert world.cancel(job).code == "Q"
        assert world.heartbeat(job, progress=b"{}", past=b"{}") == "Q"
    found = world.locate(job)
    assert (found.progress, found.attempts[:2]) == (b"{}", b"0 ")
    world.check()


def test_those_who_wait_are_told(world: World) -> None:
    job = world.running()
    world.redis.set(world.part.waiters, "1", px=60_000)
    with full(world):
        assert world.finish(job, "C", result_ttl_ms=60_000) == "M"
    assert world.redis.xlen(world.part.done) == 1


def test_an_owner_takes_over_and_trims(world: World) -> None:
    ended = world.ended()
    tag = str(world.dump()["meta/tag"])
    token = Fence(2, "next")
    fence = owner.fence(world.part, token, incarnation="", depth_limit="none", grace_ms=LEASE_MS)
    before = world.dump()
    with full(world):
        world.run(fence)
        seq = world.seq
        trim = owner.trim(
            world.part, token, entry=(seq, tag), before=seq, keep_ms=0, ids=[ended.id],
            committed=Committed(seq, seq, [(seq, tag)]),
        )  # fmt: skip
        assert world.run(trim).dropped == 1
    changed = changes(before, world.check())
    assert changed["meta/epoch"] == "2"
    assert changed["meta/durable_seq"] == str(world.seq)
    assert world.redis.xlen(world.part.acks) == 1
    assert (changed["journal/1"], changed[f"finished/{ended.id}"]) == (GONE, GONE)


def test_the_lease_of_an_owner_is_renewed(world: World) -> None:
    with full(world):
        call = owner.renew(world.namespace, 0, "n1", ttl_ms=1000, want=[1], drop=[])
        assert world.run(call).granted == {1}


def test_dead_jobs_are_purged(world: World) -> None:
    job = world.dead(key="k")
    call = sweep.purge(world.part, QUEUE, [(job.id, job.stub())], keep_ms=0, tag=world.tag())
    with full(world):
        assert world.run(call).codes == "M"
    world.check()


def test_a_full_server_that_works_makes_room_for_new_jobs(
    own_server: OwnServerFactory, ns: str
) -> None:
    with World(own_server(appendonly=False).url, ns) as world:
        payload = b'"' + b"x" * 10_000 + b'"'
        accepted = {job.id: job for job in (world.job(payload=payload) for _ in range(400))}
        world.enqueue(*accepted.values())
        used: int = world.redis.info("memory")["used_memory"]
        world.redis.config_set("maxmemory", used - 100_000)
        with pytest.raises(StoreFull):
            world.enqueue(world.job(payload=payload))
        while starts := world.take(50).starts:
            ends = [accepted[start.id].end("C") for start in starts]
            world.run(work.finish(world.part, WORKER, ends, tag=world.tag()))
        assert world.enqueue(world.job(payload=payload)) == "D"
        world.check()
