"""What a server says of itself, and which servers are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redjob.errors import ServerUnsuitable
from redjob.store.facts import ServerFacts, check_server, facts_query, parse_info, server_facts

REDIS = b"""# Server\r
redis_version:7.0.15\r
redis_mode:standalone\r
run_id:abc\r
executable:/usr/bin/redis-server:odd\r
\r
# Persistence\r
loading:0\r
aof_enabled:1\r
maxmemory:1048576\r
maxmemory_policy:noeviction\r
connected_slaves:2\r
"""
VALKEY = REDIS + b"server_name:valkey\r\nvalkey_version:8.1.0\r\nserver_mode:cluster\r\n"


def facts(**changed: object) -> ServerFacts:
    return replace(server_facts(parse_info(REDIS)), **changed)  # type: ignore[arg-type] # passed on


def test_info_of_redis() -> None:
    found = server_facts(parse_info(REDIS))
    assert found == ServerFacts(
        run_id="abc", name="redis", version=(7, 0, 15), loading=False, eviction="noeviction",
        maxmemory=1_048_576, appendonly=True, cluster=False, replicas=2,
    )  # fmt: skip
    assert found.label == "redis 7.0.15"


def test_valkey_has_a_version_of_its_own() -> None:
    found = server_facts(parse_info(VALKEY))
    assert (found.label, found.version) == ("valkey 8.1.0", (8, 1, 0))


@pytest.mark.parametrize("field", [b"redis_mode", b"server_mode"])
def test_a_cluster_says_so_by_either_name(field: bytes) -> None:
    assert server_facts(parse_info(field + b":cluster\r\n")).cluster


def test_a_value_keeps_its_colons_and_bytes_that_are_no_text_do_no_harm() -> None:
    assert parse_info(REDIS)["executable"] == "/usr/bin/redis-server:odd"
    assert parse_info(b"os:\xff\r\nrun_id:x\r\n")["run_id"] == "x"


def test_a_managed_server_that_tells_little_is_taken_by_the_defaults() -> None:
    found = server_facts({"redis_version": "7.2"})
    assert (found.eviction, found.maxmemory, found.appendonly, found.replicas) == (
        "noeviction", 0, False, 0,
    )  # fmt: skip


def test_the_query_asks_for_everything() -> None:
    query = facts_query()
    assert query.commands == [("INFO",)]
    assert query.read([REDIS]).run_id == "abc"


@pytest.mark.parametrize(
    ("name", "version", "fits"),
    [
        ("redis", (7, 0, 0), True),
        ("redis", (6, 2, 14), False),
        ("redis", (8, 0), True),
        ("valkey", (7, 2, 5), True),
        ("valkey", (7, 0), False),
        ("redis", (), False),
    ],
)
def test_old_servers_are_refused_by_name(name: str, version: tuple[int, ...], fits: bool) -> None:
    given = facts(name=name, version=version)
    if fits:
        assert check_server(given) == []
    else:
        with pytest.raises(ServerUnsuitable, match="too old"):
            check_server(given, allow_eviction=True)


def test_a_server_that_may_delete_jobs_is_refused_unless_that_is_allowed() -> None:
    given = facts(eviction="allkeys-lru")
    with pytest.raises(ServerUnsuitable, match="--allow-eviction"):
        check_server(given)
    (warning,) = check_server(given, allow_eviction=True)
    assert "allkeys-lru" in warning


def test_a_server_that_keeps_nothing_on_disk_is_worth_a_warning() -> None:
    (warning,) = check_server(facts(appendonly=False))
    assert "appendonly" in warning
