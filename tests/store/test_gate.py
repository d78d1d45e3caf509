"""The gate: what every script answers while a partition is not open, rebuilt, or not yet checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from redjob.calls import owner, work
from redjob.calls.reads import Query
from redjob.errors import Hold, NotReady, Rebuilding
from redjob.keys import Keyspace
from redjob.store.settings import settings_from_url
from redjob.store.sync import SyncStore
from tests.support.dump import changes
from tests.support.ground import LEASE_MS
from tests.support.samples import sample_calls

if TYPE_CHECKING:
    from redjob.calls.call import Call
    from tests.support.servers import TestServer
    from tests.support.world import World

_PART = Keyspace("gate", 1).parts[0]
_SAMPLES = [sample.call for sample in sample_calls(_PART)]
_GATED = [n for n, call in enumerate(_SAMPLES) if call.script not in {"fence", "renew"}]
_MOVERS = [n for n in _GATED if _SAMPLES[n].run_id_at >= 0]
_READS = {"locate"}


def _name(n: int) -> str:
    return f"{_SAMPLES[n].script}-{n}"


def _call(world: World, n: int) -> Call[Any]:
    return sample_calls(world.part, world.namespace)[n].call


@pytest.mark.parametrize("n", _GATED, ids=_name)
def test_a_partition_that_nobody_opened_is_not_written_to(
    server: TestServer, ns: str, n: int
) -> None:
    part = Keyspace(ns, 1).parts[0]
    store = SyncStore(settings_from_url(server.url), ns)
    with pytest.raises(NotReady, match=f"namespace '{ns}' is not open"):
        store.call(sample_calls(part, ns)[n].call)
    found = store.query(_all_keys(ns))
    store.close()
    assert found == []


def _all_keys(ns: str) -> Any:
    return Query(None, [("KEYS", f"{ns}:*")], lambda raw: raw[0])


def test_fence_creates_nothing_unless_it_is_told_to(world: World) -> None:
    world.redis.delete(*world.redis.keys(f"{world.part.base}*"))
    with pytest.raises(NotReady):
        world.run(_call(world, [call.script for call in _SAMPLES].index("fence")))
    assert world.dump() == {}


@pytest.mark.parametrize("n", _GATED, ids=_name)
def test_a_partition_that_is_rebuilt_refuses_all_but_reads(world: World, n: int) -> None:
    world.redis.hset(world.part.meta, "state", "REBUILDING")
    before = world.dump()
    call = _call(world, n)
    if call.script in _READS:
        world.run(call)
    else:
        with pytest.raises(Rebuilding) as caught:
            world.run(call)
        assert caught.value.retry_after_s > 0
    assert changes(before, world.dump()) == {}


@pytest.mark.parametrize("n", _MOVERS, ids=_name)
def test_who_moves_jobs_waits_until_an_owner_has_checked_a_restarted_server(
    world: World, n: int
) -> None:
    world.redis.hset(world.part.meta, "run_id", "of-the-server-before")
    before = world.dump()
    with pytest.raises(Hold):
        world.run(_call(world, n))
    assert changes(before, world.dump()) == {}


def test_who_moves_jobs_is_known_by_its_script() -> None:
    movers = {_SAMPLES[n].script for n in _MOVERS}
    assert movers == {"fire", "release", "take", "begin", "reclaim", "requeue", "lose"}


def test_clients_and_ends_of_attempts_do_not_wait_for_an_owner(world: World) -> None:
    running, waiting = world.running(), world.scheduled()
    world.redis.hset(world.part.meta, "run_id", "of-the-server-before")
    new = world.job()
    assert world.enqueue(new) == "D"
    assert world.heartbeat(running) == "H"
    assert world.cancel(waiting).code == "K"
    assert world.finish(running, "C") == "M"
    assert world.locate(new).doc == new.doc


def test_a_consumer_that_does_not_follow_the_server_may_begin_anyway(world: World) -> None:
    job = world.dispatched()
    world.redis.hset(world.part.meta, "run_id", "of-the-server-before")
    call = work.begin(
        world.part, "q", "theirs", [(world.entry_of(job), job.id)], lease_ms=LEASE_MS, tag="t"
    )
    assert world.raw(call, run_id="")[4] == b"T"


def test_an_owner_that_has_checked_the_server_opens_the_gate_again(world: World) -> None:
    job = world.dispatched()
    world.redis.hset(world.part.meta, "run_id", "of-the-server-before")
    with pytest.raises(Hold):
        world.take()
    token = owner.Fence(2, "next")
    installed = world.run(
        owner.fence(world.part, token, incarnation="", depth_limit="none", grace_ms=LEASE_MS)
    )
    assert installed.run_id_before == "of-the-server-before"
    assert [start.id for start in world.take().starts] == [job.id]
