"""What the doctor makes of what servers say: clocks that differ, settings that are not told."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from redjob.cli.cluster_checks import of_pair, of_sentinels, quorum, spread
from redjob.cli.server_checks import Primary, clock_of, of_servers
from redjob.store.facts import ServerFacts
from redjob.store.routes import HOME, Address

A, B, C = (Address("10.0.0.1", port) for port in (1, 2, 3))


def primary(
    address: Address,
    ahead_ms: int = 0,
    settings: Mapping[str, str] | None = None,
    version: tuple[int, ...] = (9, 1, 0),
    replicas: int = 0,
) -> Primary:
    """A primary that is as it should be."""
    facts = ServerFacts(
        run_id="r",
        name="valkey",
        version=version,
        loading=False,
        eviction="noeviction",
        maxmemory=0,
        appendonly=True,
        cluster=True,
        replicas=replicas,
    )
    return Primary(address, facts, 5 << 20, ahead_ms, settings)


@pytest.mark.parametrize(
    ("ahead_ms", "status", "told"),
    [
        ([0, 0, 4], "ok", "10.0.0.1:3 is farthest off the median, 4 ms ahead of it"),
        # It is not this machine's clock that counts.
        ([90_000, 90_003, 90_001], "ok", "2 ms ahead"),
        ([0, -1200, 3], "warn", "10.0.0.1:2 is farthest off the median, 1200 ms behind"),
        ([5003, 0, 2], "fail", "10.0.0.1:1 is farthest off the median, 5001 ms ahead"),
        ([5001, 0], "fail", "synchronise the clocks"),
    ],
)
def test_each_clock_is_held_against_the_median(ahead_ms: list[int], status: str, told: str) -> None:
    found = clock_of([primary(*pair) for pair in zip((A, B, C), ahead_ms, strict=False)])
    assert found[0] == status
    assert told in found[1]


def test_a_server_by_itself_is_held_against_this_machine() -> None:
    assert clock_of([primary(HOME, -7)]) == ("ok", "the server is 7 ms behind")
    assert clock_of([primary(HOME, 5001)])[0] == "fail"


def test_only_those_at_fault_are_named() -> None:
    found = of_servers([primary(A), primary(B, version=(7, 0)), primary(C)], allow_eviction=False)
    status, detail = found["version"]
    assert status == "fail"
    assert detail.startswith("10.0.0.1:2: valkey 7.0 is too old")
    assert found["appendonly"] == ("ok", "on")
    assert found["hash-max-listpack-value"] == ("ok", "not told by this server (no CONFIG)")


@pytest.mark.parametrize(
    ("least", "replicas", "status", "told"),
    [
        ("0", 1, "ok", "0 of 1"),
        ("1", 1, "warn", "as soon as one replica is away"),
        ("0", 2, "warn", "set 1, with min-replicas-max-lag 2"),
        ("1", 2, "ok", "1 of 2"),
        ("2", 1, "fail", "every write is refused"),
    ],
)
def test_min_replicas_is_judged_by_how_many_there_are(
    least: str, replicas: int, status: str, told: str
) -> None:
    one = primary(A, settings={"min-replicas-to-write": least}, replicas=replicas)
    found = of_pair([one], must_have_replica=True)["min-replicas-to-write"]
    assert found[0] == status
    assert told in found[1]


def test_a_server_by_itself_needs_no_replica() -> None:
    assert of_pair([primary(HOME)], must_have_replica=False) == {}
    assert of_pair([primary(HOME)], must_have_replica=True)["replicas"][0] == "warn"


def test_partitions_and_quorum_keys_must_be_spread() -> None:
    assert spread({A: 22, B: 21, C: 21}, [A, B, C])[0] == "ok"
    status, detail = spread({A: 50, B: 14}, [A, B, C])
    assert status == "warn"
    assert "10.0.0.1:3 has 0" in detail
    assert spread({A: 1, B: 1}, [A, B, C])[0] == "ok"  # too few to go round
    assert quorum({A: 2, B: 2, C: 1})[0] == "ok"
    assert quorum({A: 3, B: 2})[0] == "warn"
    assert quorum({None: 3, B: 2})[0] == "fail"


def test_sentinels_that_disagree_fail() -> None:
    assert of_sentinels({A: C, B: C})[0] == "warn"
    assert of_sentinels({A: C, B: A})[0] == "fail"
