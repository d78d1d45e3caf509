"""renew: membership and partition leases at one quorum key, by the server's clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redjob.calls import owner
from redjob.keys import nodes_key

if TYPE_CHECKING:
    from redjob.calls.owner import Renewed
    from tests.support.world import World


def renew(
    world: World, node: str, want: tuple[int, ...] = (), drop: tuple[int, ...] = (), ttl: int = 1000
) -> Renewed:
    return world.run(owner.renew(world.namespace, 0, node, ttl_ms=ttl, want=want, drop=drop))


def test_who_comes_first_gets_the_partition_and_keeps_it(world: World) -> None:
    first = renew(world, "n1", (1, 2))
    assert (set(first.granted), first.others) == ({1, 2}, {})
    world.advance(10)
    second = renew(world, "n2", (2, 3))
    assert (set(second.granted), second.others) == ({3}, {1: "n1", 2: "n1"})
    assert second.nodes == {"n1": world.now_ms - 10, "n2": world.now_ms}
    world.advance(900)
    assert renew(world, "n1", (1, 2)).granted == {1, 2}


def test_a_node_keeps_the_time_that_it_joined_while_it_renews(world: World) -> None:
    joined = world.now_ms
    for _ in range(3):
        assert renew(world, "n1").nodes == {"n1": joined}
        world.advance(900)


def test_what_is_not_renewed_ends_with_its_time_to_live(world: World) -> None:
    renew(world, "n1", (1,))
    world.advance(999)
    assert renew(world, "n2", (1,)).granted == frozenset()
    world.advance(1)
    reply = renew(world, "n2", (1,))
    assert (set(reply.granted), set(reply.nodes), reply.others) == ({1}, {"n2"}, {})


def test_a_partition_that_is_given_up_is_free_at_once(world: World) -> None:
    renew(world, "n1", (1, 2))
    renew(world, "n1", (1,), drop=(2,))
    assert renew(world, "n2", (1, 2)).granted == {2}


def test_only_the_holder_can_give_a_partition_up(world: World) -> None:
    renew(world, "n1", (1,))
    renew(world, "n2", (), drop=(1,))
    assert renew(world, "n2", (1,)).granted == frozenset()


def test_leaving_drops_membership_and_all_partitions(world: World) -> None:
    renew(world, "n1", (1, 2))
    renew(world, "n2", (3,))
    renew(world, "n1", ttl=0)
    reply = renew(world, "n2", (1, 2, 3))
    assert (set(reply.granted), set(reply.nodes)) == ({1, 2, 3}, {"n2"})


def test_a_repeated_renewal_has_the_same_reply(world: World) -> None:
    renew(world, "n2", (3,))
    assert renew(world, "n1", (1, 3)) == renew(world, "n1", (1, 3))


def test_nothing_stays_of_nodes_that_are_gone(world: World) -> None:
    for n in range(5):
        renew(world, f"old{n}", (n,))
    world.advance(1000)
    renew(world, "n1")
    fields = world.redis.hkeys(nodes_key(world.namespace, 0))
    assert fields == [b"node:n1"]
