"""Who owns what: decisions on values, and nodes against a model of the quorum keys."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redjob.calls.owner import Renewed
from redjob.config import SchedulerConfig
from redjob.scheduler.lease import Lease, counting, merge, plan, shares
from redjob.testing import ManualClock

CONFIG = SchedulerConfig()
EVERY_MS = int(CONFIG.renew_every_s * 1000)
PARTITIONS = 16
ALL = frozenset(range(PARTITIONS))
NODES = st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True)


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Drive what never waits for anything."""
    return asyncio.run(coroutine)


class QuorumKey:
    """What `lua/renew.lua` keeps, as a model."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[int, int]] = {}  # since, until
        self.parts: dict[int, tuple[str, int]] = {}  # node, until

    def renew(
        self, node: str, now_ms: int, ttl_ms: int, want: frozenset[int], drop: frozenset[int]
    ) -> Renewed:
        self.nodes = {name: kept for name, kept in self.nodes.items() if kept[1] > now_ms}
        self.parts = {index: kept for index, kept in self.parts.items() if kept[1] > now_ms}
        for index in drop:
            if self.parts.get(index, ("", 0))[0] == node:
                del self.parts[index]
        granted: set[int] = set()
        if ttl_ms == 0:
            self.nodes.pop(node, None)
            self.parts = {index: kept for index, kept in self.parts.items() if kept[0] != node}
        else:
            since = self.nodes.get(node, (now_ms, 0))[0]
            self.nodes[node] = (since, now_ms + ttl_ms)
            for index in want:
                if self.parts.get(index, (node, 0))[0] == node:
                    self.parts[index] = (node, now_ms + ttl_ms)
                    granted.add(index)
        since_of = {name: kept[0] for name, kept in self.nodes.items()}
        others = {index: kept[0] for index, kept in self.parts.items() if kept[0] != node}
        return Renewed(now_ms, since_of, frozenset(granted), others)


class Keys:
    """The quorum keys as one node reaches them: `away` do not answer it."""

    def __init__(self, node: str, clock: ManualClock, keys: list[QuorumKey]) -> None:
        self.node = node
        self.clock = clock
        self.keys = keys
        self.away: set[int] = set()
        self.takes_ms = 0  # how long the answer is on its way

    async def ask(
        self,
        *,
        ttl_ms: int,
        want: frozenset[int],
        drop: frozenset[int],
        within_s: float,  # noqa: ARG002 - the protocol has it
    ) -> list[Renewed | None]:
        replies = [
            None
            if number in self.away
            else key.renew(self.node, self.clock.wall_ms(), ttl_ms, want, drop)
            for number, key in enumerate(self.keys)
        ]
        self.clock.advance(self.takes_ms)
        return replies


class Cluster:
    """Nodes that beat in turn."""

    def __init__(self, quorum: int = 1) -> None:
        self.clock = ManualClock()
        self.keys = [QuorumKey() for _ in range(quorum)]
        self.nodes: dict[str, Lease] = {}
        self.links: dict[str, Keys] = {}
        self.history: list[tuple[str, frozenset[int]]] = []

    def join(self, name: str) -> Lease:
        self.links[name] = Keys(name, self.clock, self.keys)
        node = Lease(
            name,
            self.links[name],
            self.clock,
            CONFIG,
            partitions=PARTITIONS,
            on_change=lambda: self.history.append((name, node.held)),
        )
        self.nodes[name] = node
        return node

    def beat(self, *names: str) -> None:
        """One round: each node beats, again while it asks for that, and time passes."""
        for name in names or tuple(self.nodes):
            for _ in range(4):
                if not run(self.nodes[name].beat()):
                    break
        self.clock.advance(EVERY_MS)

    def pass_ms(self, ms: int) -> None:
        for _ in range(ms // EVERY_MS):
            self.beat()


def test_a_lone_node_takes_everything_at_once() -> None:
    cluster = Cluster()
    node = cluster.join("a")
    cluster.beat()
    assert node.held == ALL
    assert node.settled


def test_a_joiner_gets_its_share_after_two_seconds_and_not_before() -> None:
    cluster = Cluster()
    first = cluster.join("a")
    cluster.pass_ms(5000)
    second = cluster.join("b")
    cluster.pass_ms(1750)
    assert (first.held, second.held) == (ALL, frozenset())
    cluster.pass_ms(1000)
    assert first.held | second.held == ALL
    assert not first.held & second.held
    assert second.held == {i for i, who in enumerate(shares(("a", "b"), PARTITIONS)) if who == "b"}


def test_a_partition_is_dropped_by_its_owner_before_it_is_granted_to_the_joiner() -> None:
    cluster = Cluster()
    cluster.join("a")
    cluster.pass_ms(5000)
    cluster.join("b")
    cluster.pass_ms(3000)
    holders: dict[str, frozenset[int]] = {}
    for name, held in cluster.history:
        holders[name] = held
        assert not holders.get("a", frozenset()) & holders.get("b", frozenset())


def test_nodes_that_start_together_share_at_once() -> None:
    cluster = Cluster()
    first, second = cluster.join("a"), cluster.join("b")
    cluster.pass_ms(750)
    assert first.held
    assert second.held
    assert first.held | second.held == ALL


def test_the_partitions_of_a_dead_node_are_taken_within_one_ttl_and_one_beat() -> None:
    cluster = Cluster()
    first, second = cluster.join("a"), cluster.join("b")
    cluster.pass_ms(3000)
    died = cluster.clock.monotonic()
    while second.held != ALL:
        cluster.beat("b")
        assert cluster.clock.monotonic() - died <= 1.0 + 2 * CONFIG.renew_every_s
    assert first.held  # it is dead: it cannot know


def test_a_node_that_leaves_is_followed_at_the_next_beat() -> None:
    cluster = Cluster()
    first, second = cluster.join("a"), cluster.join("b")
    cluster.pass_ms(3000)
    run(first.leave(within_s=1))
    assert first.held == frozenset()
    cluster.beat("b")
    assert second.held == ALL


def test_trust_is_counted_from_before_the_request() -> None:
    cluster = Cluster()
    node = cluster.join("a")
    cluster.links["a"].takes_ms = 300
    started = cluster.clock.monotonic()
    run(node.beat())
    assert node.trusted_until == pytest.approx(started + 1.0 - 0.15)


def test_without_an_answer_a_node_keeps_what_it_owns_until_its_trust_ends() -> None:
    cluster = Cluster()
    node = cluster.join("a")
    cluster.beat()
    cluster.links["a"].away = {0}
    while cluster.clock.monotonic() < node.trusted_until:
        run(node.beat())
        assert node.held == ALL
        cluster.clock.advance(50)
    run(node.beat())
    assert node.held == frozenset()
    assert not node.settled


def test_after_an_absence_of_its_own_a_node_takes_nothing_before_others_could_renew() -> None:
    cluster = Cluster()
    first, second = cluster.join("a"), cluster.join("b")
    cluster.pass_ms(3000)
    before = first.held, second.held
    cluster.clock.advance(60_000)  # the whole machine was suspended: all leases have ended
    run(first.beat())
    assert first.held == before[0]
    cluster.beat("b")
    cluster.pass_ms(1000)
    assert (first.held, second.held) == before


def test_keys_that_forgot_all_members_do_not_make_a_node_alone() -> None:
    cluster = Cluster()
    first, second = cluster.join("a"), cluster.join("b")
    cluster.pass_ms(5000)
    before = first.held, second.held
    cluster.keys[0].nodes.clear()
    cluster.keys[0].parts.clear()
    cluster.pass_ms(1000)
    assert (first.held, second.held) == before


def test_a_disowned_partition_comes_back_only_by_a_beat() -> None:
    cluster = Cluster()
    node = cluster.join("a")
    cluster.beat()
    node.disown(3)
    assert node.held == ALL - {3}
    cluster.beat()
    assert node.held == ALL


def test_a_majority_of_quorum_keys_is_enough_and_a_minority_is_not() -> None:
    cluster = Cluster(quorum=5)
    node = cluster.join("a")
    cluster.links["a"].away = {1, 4}
    cluster.beat()
    assert node.held == ALL
    cluster.links["a"].away = {0, 1, 4}
    cluster.clock.advance(1000)
    run(node.beat())
    assert node.held == frozenset()


def test_two_nodes_that_reach_different_keys_never_hold_the_same() -> None:
    cluster = Cluster(quorum=5)
    first, second = cluster.join("a"), cluster.join("b")
    cluster.links["a"].away = {0, 1}
    cluster.links["b"].away = {3, 4}
    for _ in range(20):
        cluster.beat()
        assert not first.held & second.held


def test_what_a_minority_says_does_not_count() -> None:
    live = Renewed(10_000, {"a": 0, "b": 0}, frozenset({1}), {2: "b"})
    odd = Renewed(10_000, {"a": 0, "c": 0}, frozenset({1, 5}), {6: "c"})
    view = merge([live, live, odd, None, None])
    assert view is not None
    assert view.nodes.keys() == {"a"}  # b: two of five
    assert view.granted == {1}
    assert view.others == {}
    assert merge([live, live, None, None, None]) is None


@given(NODES)
def test_every_partition_has_one_owner_and_all_nodes_agree_on_it(nodes: list[str]) -> None:
    spread = tuple(sorted(nodes))
    wants = [plan(node, spread, frozenset(), PARTITIONS).want for node in nodes]
    assert sum(len(want) for want in wants) == PARTITIONS
    assert frozenset().union(*wants) == ALL


@given(NODES, st.sampled_from("abcdefgh"))
def test_a_node_that_joins_moves_only_what_it_gets(nodes: list[str], joiner: str) -> None:
    before = shares(tuple(sorted(nodes)), PARTITIONS)
    after = shares(tuple(sorted({*nodes, joiner})), PARTITIONS)
    assert all(new in {old, joiner} for old, new in zip(before, after, strict=True))


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 5000), min_size=1))
def test_the_oldest_node_counts_and_who_counts_goes_on_to(ages: dict[str, int]) -> None:
    def at(later_ms: int) -> tuple[str, ...]:
        nodes = {node: age_ms + later_ms for node, age_ms in ages.items()}
        return counting(nodes, join_delay_ms=2000, together_ms=500)

    before = at(0)
    assert max(ages, key=lambda node: ages[node]) in before
    for later_ms in (1, 250, 499, 500, 1999, 2000, 10_000):
        assert set(before) <= set(at(later_ms))
        before = at(later_ms)
    assert set(before) == set(ages)
