"""fence and trim: one owner at a time, and a journal that is only cut where it was read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from redjob.calls import owner
from redjob.calls.owner import Committed, Fence
from redjob.errors import Fenced, JournalForked
from tests.support.dump import GONE, Journaled, changes
from tests.support.ground import LEASE_MS, TOKEN

if TYPE_CHECKING:
    from tests.support.dump import State
    from tests.support.world import World

pytestmark = pytest.mark.server("valkey", "redis", "cluster")


def fence(world: World, token: Fence, **given: str) -> owner.Installed:
    wanted = {"incarnation": "", "depth_limit": "none"} | given
    return world.run(
        owner.fence(
            world.part,
            token,
            incarnation=wanted["incarnation"],
            depth_limit=wanted["depth_limit"],
            grace_ms=LEASE_MS,
        )
    )


def trim(world: World, token: Fence, *, seq: int = 0, tag: str = "", **given: object) -> int:
    return world.run(
        owner.trim(
            world.part,
            token,
            entry=(seq, tag),
            **({"before": seq, "keep_ms": 0} | given),  # type: ignore[arg-type] # passed on
        )
    ).dropped


def tag_at(state: State, seq: int) -> str:
    entry = state[f"journal/{seq}"]
    assert isinstance(entry, Journaled)
    return entry.tag


def test_a_higher_epoch_takes_over_and_changes_nothing_but_who_owns(world: World) -> None:
    world.scheduled()
    before = world.check()
    installed = fence(world, Fence(2, "next"), depth_limit="7")
    assert (installed.incarnation, installed.at.seq) == ("inc", 1)
    assert installed.run_id_before == world.run_id
    assert installed.tag == before["meta/tag"]
    assert changes(before, world.check()) == {
        "meta/epoch": "2",
        "meta/depth_limit": "7",
        "owner/epoch": "2",
        "owner/nonce": "next",
        "owner/before": world.run_id,
    }


@pytest.mark.parametrize(
    "token", [Fence(1, "other"), Fence(0, "nonce")], ids=["equal epoch, other nonce", "lower epoch"]
)
def test_an_epoch_that_is_not_higher_is_fenced_off(world: World, token: Fence) -> None:
    before = world.dump()
    with pytest.raises(Fenced) as caught:
        fence(world, token)
    assert (caught.value.partition, caught.value.epoch) == (0, 1)
    assert changes(before, world.dump()) == {}


def test_the_first_fence_of_a_partition_is_told_that_it_is_new_also_when_it_asks_again(
    world: World,
) -> None:
    again = fence(world, TOKEN, incarnation="another")
    assert (again.incarnation, again.run_id_before) == ("inc", "")


@pytest.mark.parametrize("postgres", [True, False])
def test_each_fence_says_anew_whether_records_go_into_the_journal(
    world: World, postgres: bool
) -> None:
    world.redis.hset(world.part.meta, "postgres", int(not postgres))
    world.run(
        owner.fence(
            world.part,
            Fence(2, "next"),
            incarnation="",
            depth_limit="none",
            grace_ms=LEASE_MS,
            postgres=postgres,
        )
    )
    assert world.dump()["meta/postgres"] == str(int(postgres))
    job = world.scheduled()
    entry = world.check()[f"journal/{world.seq}"]
    assert isinstance(entry, Journaled)
    assert (job.new.doc.decode() in entry.lines[0]) is postgres


def test_a_repeated_fence_still_tells_that_the_server_had_restarted(world: World) -> None:
    world.redis.hset(world.part.meta, "run_id", "of-the-server-before")
    first = fence(world, Fence(2, "next"))
    before = world.dump()
    again = fence(world, Fence(2, "next"))
    assert first.run_id_before == again.run_id_before == "of-the-server-before"
    assert changes(before, world.dump()) == {}


def test_a_restarted_server_gives_workers_a_lease_to_be_heard(world: World) -> None:
    world.redis.hset(world.part.meta, "run_id", "of-the-server-before")
    before = world.dump()
    fence(world, Fence(2, "next"))
    assert changes(before, world.dump())["meta/grace_until"] == str(world.now_ms + LEASE_MS)


def test_a_journal_that_outlived_its_meta_goes_on_above_its_last_entry(world: World) -> None:
    world.scheduled()
    world.scheduled()
    world.redis.delete(world.part.meta, world.part.owner)
    assert fence(world, Fence(1, "nonce"), incarnation="new").at.seq == 2
    world.scheduled()
    assert max(int(name[8:]) for name in world.dump() if name.startswith("journal/")) == 3


def test_trim_drops_what_is_before_its_entry_and_can_be_repeated(world: World) -> None:
    for _ in range(4):
        world.scheduled()
    state = world.check()
    tag = tag_at(state, 3)
    for _ in range(2):
        trim(world, TOKEN, seq=3, tag=tag)
        assert changes(state, world.check()) == {"journal/1": GONE, "journal/2": GONE}


def test_trim_raises_the_durable_position_and_never_lowers_it(world: World) -> None:
    for _ in range(3):
        world.scheduled()
    state = world.dump()
    tag = tag_at(state, 2)
    trim(world, TOKEN, seq=2, tag=tag, committed=Committed(2, 0))
    assert world.dump()["meta/durable_seq"] == "2"
    trim(world, TOKEN, seq=2, tag=tag, committed=Committed(1, 0))
    assert world.dump()["meta/durable_seq"] == "2"


def test_trim_may_say_what_is_committed_and_leave_the_journal_as_it_is(world: World) -> None:
    for _ in range(3):
        world.scheduled()
    before = world.dump()
    trim(world, TOKEN, seq=3, tag=tag_at(before, 3), before=0, committed=Committed(3, 0))
    assert changes(before, world.check()) == {"meta/durable_seq": "3"}


def test_trim_lists_the_committed_calls_that_are_waited_for_each_once(world: World) -> None:
    for _ in range(3):
        world.scheduled()
    tag = tag_at(world.dump(), 3)
    for acks in ([(1, "w1"), (2, "w2")], [(2, "w2"), (3, "w3")], [(1, "w1")], []):
        trim(world, TOKEN, seq=3, tag=tag, committed=Committed(3, 0, acks))
    told = world.redis.xrange(world.part.acks)
    assert told == [(b"%d-0" % seq, {b"tag": b"w%d" % seq, b"verdict": b"C"}) for seq in (1, 2, 3)]


def test_acks_are_kept_short(world: World) -> None:
    world.scheduled()
    tag = tag_at(world.dump(), 1)
    for start in range(1, 11_001, 500):
        acks = [(seq, "w") for seq in range(start, start + 500)]
        trim(world, TOKEN, seq=1, tag=tag, committed=Committed(1, 0, acks))
    assert 10_000 <= world.redis.xlen(world.part.acks) < 10_200


def test_damaged_acks_keep_no_commit_from_being_told(world: World) -> None:
    world.scheduled()
    tag = tag_at(world.dump(), 1)
    world.redis.set(world.part.acks, "damaged")
    trim(world, TOKEN, seq=1, tag=tag, committed=Committed(1, 0, [(1, "w")]))
    assert world.dump()["meta/durable_seq"] == "1"


@pytest.mark.parametrize(
    ("seq", "tag"), [(2, "not-what-was-read"), (9, "0000000000000002")], ids=["tag", "seq"]
)
def test_trim_refuses_a_journal_that_is_not_the_one_that_was_read(
    world: World, seq: int, tag: str
) -> None:
    for _ in range(3):
        world.scheduled()
    before = world.dump()
    with pytest.raises(JournalForked):
        trim(world, TOKEN, seq=seq, tag=tag, committed=Committed(seq, seq, [(seq, "w")]))
    assert changes(before, world.dump()) == {}


@pytest.mark.parametrize("token", [Fence(1, "other"), Fence(2, "nonce"), Fence(0, "nonce")])
def test_trim_by_another_owner_has_no_effect(world: World, token: Fence) -> None:
    world.ended()
    before = world.dump()
    with pytest.raises(Fenced):
        trim(world, token, seq=1, tag="0000000000000001", ids=[])
    assert changes(before, world.dump()) == {}


def test_trim_drops_tombstones_that_are_old_enough_and_no_others(world: World) -> None:
    old = world.ended()
    world.advance(60_000)
    young = world.ended()
    scheduled = world.scheduled()
    before = world.dump()
    ids = [old.id, young.id, scheduled.id]
    assert trim(world, TOKEN, ids=ids, keep_ms=60_000) == 1
    assert changes(before, world.check()) == {f"finished/{old.id}": GONE}
    assert trim(world, TOKEN, ids=ids, keep_ms=60_000) == 0


def test_trim_drops_no_tombstone_of_what_postgres_has_not_had_long_enough(world: World) -> None:
    job = world.ended()
    seq = world.seq
    for settled_seq, dropped in ((seq - 1, 0), (seq, 1)):
        committed = Committed(seq, settled_seq)
        assert trim(world, TOKEN, ids=[job.id], committed=committed) == dropped


def test_trim_leaves_a_damaged_tombstone_alone(world: World) -> None:
    world.redis.hset(world.part.finished, "x", "not a tombstone")
    assert trim(world, TOKEN, ids=["x"]) == 0
