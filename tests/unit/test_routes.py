"""Which server has a slot, by what Sentinels and clusters answer."""

from __future__ import annotations

import random
from typing import Any

import pytest

from redjob.errors import ServerUnsuitable
from redjob.store.routes import HOME, Address, ClusterRoutes, OneServer, SentinelRoutes, routes_for

A, B, C = (Address(host, 7000) for host in ("a", "b", "c"))
SEEDS = [Address("seed1", 7000), Address("seed2", 7001)]


def cluster(*seeds: Address) -> ClusterRoutes:
    return ClusterRoutes(seeds or SEEDS, random.Random(1))


def row(first: int, last: int, *nodes: Address) -> list[Any]:
    """One range of CLUSTER SLOTS, the primary first, as redis-py hands it over."""
    return [first, last, *([node.host.encode(), node.port, b"id", []] for node in nodes)]


WHOLE = [row(0, 5460, A, C), row(5461, 10922, B), row(10923, 16383, C, A)]


def test_an_address_is_written_as_in_urls() -> None:
    assert str(A) == "a:7000"
    assert str(Address("::1", 6379)) == "[::1]:6379"


# one server


def test_one_server_has_every_slot_and_is_never_asked() -> None:
    routes = routes_for("single", [], "", random.Random())
    assert isinstance(routes, OneServer)
    assert not routes.stale
    assert routes.candidates() == []
    assert routes.of(None) == routes.of(16383) == HOME
    routes.failed()
    assert not routes.stale
    assert routes.primaries == [HOME]


def test_a_redirection_by_one_server_says_what_the_url_should_be() -> None:
    with pytest.raises(ServerUnsuitable, match=r"slot 7 is at a:7000.*redis\+cluster://"):
        OneServer().moved(7, A)


# Sentinels


def test_sentinels_are_asked_for_the_service_in_any_order() -> None:
    routes = routes_for("sentinel", [A, B, C], "mymaster", random.Random(1))
    assert routes.question == ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster")
    assert routes.stale
    assert routes.of(3) is None
    assert routes.primaries == []
    orders = {tuple(routes.candidates()) for _ in range(50)}
    assert len(orders) > 1
    assert all(sorted(order) == [A, B, C] for order in orders)


def test_the_primary_that_was_named_last_has_every_slot() -> None:
    routes = SentinelRoutes([A], "s", random.Random())
    assert routes.learn(A, [b"b", b"7000"])
    assert not routes.stale
    assert routes.of(None) == routes.of(9) == B
    routes.moved(9, A)
    assert routes.of(9) == B
    routes.failed()
    assert routes.of(9) == B, "better than nobody"
    assert routes.learn(A, ["c", "7000"])
    assert routes.primaries == [C]


def test_a_failure_has_the_sentinels_asked_again() -> None:
    routes = SentinelRoutes([A], "s", random.Random())
    routes.learn(A, [b"b", b"7000"])
    routes.failed()
    assert routes.stale


def test_a_sentinel_that_does_not_know_the_service_is_of_no_use() -> None:
    routes = SentinelRoutes([A], "s", random.Random())
    assert not routes.learn(A, None)
    assert routes.stale


# clusters


def test_a_cluster_is_asked_at_the_servers_of_the_url_first() -> None:
    routes = routes_for("cluster", SEEDS, "", random.Random())
    assert routes.question == ("CLUSTER", "SLOTS")
    assert routes.stale
    assert routes.candidates() == SEEDS
    assert routes.of(0) is None
    assert routes.of(None) is None


def test_a_map_gives_each_slot_its_primary() -> None:
    routes = cluster()
    assert routes.learn(SEEDS[0], WHOLE)
    assert not routes.stale
    assert [routes.of(slot) for slot in (0, 5460, 5461, 10922, 10923, 16383)] == [A, A, B, B, C, C]
    assert routes.primaries == [A, B, C]
    assert routes.of(None) == A


def test_later_the_primaries_are_asked_and_the_servers_of_the_url_last() -> None:
    routes = cluster(A, *SEEDS)
    routes.learn(A, WHOLE)
    asked = [routes.candidates() for _ in range(50)]
    assert all(sorted(order[:3]) == [A, B, C] and order[3:] == SEEDS for order in asked)
    assert len({tuple(order) for order in asked}) > 1


def test_a_hole_in_the_map_is_nobodys() -> None:
    routes = cluster()
    routes.learn(A, [row(0, 99, A), row(101, 16383, B)])
    assert [routes.of(slot) for slot in (99, 100, 101)] == [A, None, B]


def test_a_new_map_replaces_the_old_one_as_a_whole() -> None:
    routes = cluster()
    routes.learn(A, WHOLE)
    routes.learn(A, [row(0, 16383, B)])
    assert routes.primaries == [B]
    assert routes.of(0) == B


def test_a_node_that_has_forgotten_its_cluster_teaches_nothing() -> None:
    routes = cluster()
    routes.learn(A, WHOLE)
    routes.failed()
    assert not routes.learn(A, [])
    assert routes.stale
    assert routes.of(0) == A


@pytest.mark.parametrize("host", [None, b"", ""])
def test_a_node_without_a_name_is_the_one_that_was_asked(host: bytes | str | None) -> None:
    routes = cluster()
    routes.learn(SEEDS[1], [[0, 16383, [host, 7005, b"id"]]])
    assert routes.of(0) == Address("seed2", 7005)


def test_a_redirection_counts_at_once_and_the_map_is_read_anew() -> None:
    routes = cluster()
    routes.learn(A, WHOLE)
    new = Address("new", 7009)
    routes.moved(7, new)
    assert routes.of(7) == new
    assert routes.of(8) == A
    assert new in routes.primaries
    assert routes.stale
    routes.moved(8, new)
    assert routes.primaries.count(new) == 1


def test_a_failure_keeps_what_is_known_until_there_is_news() -> None:
    routes = cluster()
    routes.learn(A, WHOLE)
    routes.failed()
    assert routes.stale
    assert routes.of(0) == A
    assert routes.primaries == [A, B, C]


def test_what_is_handed_out_may_be_changed() -> None:
    routes = cluster()
    routes.learn(A, WHOLE)
    routes.primaries.clear()
    assert routes.primaries == [A, B, C]
