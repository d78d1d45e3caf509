"""The clusters, sentinels and TLS proxies of tests: they start soon and do what tests ask of them."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis.cluster import RedisCluster
from redis.exceptions import AskError, ResponseError, TryAgainError

from redjob.embedded import cluster
from redjob.embedded.ports import free_ports
from redjob.partitions import SLOTS, key_slot
from tests.support import cluster_node
from tests.support.servers import find_programs
from tests.support.summary import Summary
from tests.support.tls import TlsProxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.cluster import ClusterNodes
    from tests.support.servers import (
        OwnClusterFactory,
        OwnSentinelFactory,
        OwnServerFactory,
        ProgramKind,
        TestServer,
    )

_PROGRAMS = find_programs()
_KEY = "{tag}key"
_SLOT = key_slot("tag")


def _client(nodes: ClusterNodes) -> Any:
    return RedisCluster(host="127.0.0.1", port=nodes.nodes[0].port, decode_responses=True)


def _keys(nodes: ClusterNodes, prefix: str) -> list[str]:
    return [key for node in nodes.primaries() for key in node.redis.scan_iter(f"{prefix}*")]


# clusters


@pytest.mark.parametrize("kind", _PROGRAMS)
def test_a_cluster_is_up_soon_and_serves_every_slot(
    own_cluster: OwnClusterFactory, kind: ProgramKind
) -> None:
    started = time.monotonic()
    nodes = own_cluster(kind)
    assert time.monotonic() - started < 10
    assert nodes.primaries() == nodes.nodes[:3]
    assert [nodes.replicas_of(primary) for primary in nodes.nodes[:3]] == [
        [node] for node in nodes.nodes[3:]
    ]
    assert {nodes.primary_of(slot) for slot in (0, SLOTS // 2, SLOTS - 1)} == {*nodes.nodes[:3]}
    assert nodes.url == f"redis+cluster://127.0.0.1:{nodes.nodes[0].port}"
    with _client(nodes) as client:
        for number in range(60):
            client.set(f"key{number}", number)
        assert [client.get(f"key{number}") for number in range(60)] == [str(n) for n in range(60)]
        assert all(node.redis.dbsize() for node in nodes.primaries())
    nodes.flush()
    assert _keys(nodes, "") == []


def test_a_taken_bus_port_is_not_insisted_on(
    own_server: OwnServerFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = own_server().port
    offers = iter([(free_ports(1)[0], taken), free_ports(2)])
    monkeypatch.setattr(cluster, "free_ports", lambda _count: next(offers))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType] - of no type by design
    program = next(iter(_PROGRAMS.values()))
    node, bus_port = cluster_node.launch_node(tmp_path / "node", program.path, ())
    try:
        assert bus_port != taken
        assert node.command("CLUSTER", "MYID") == node.node_id
    finally:
        node.close()


def test_a_primary_hands_over_to_its_replica_in_each_way(own_cluster: OwnClusterFactory) -> None:
    nodes = own_cluster()
    with _client(nodes) as client:
        client.set(_KEY, "value")
    first = nodes.primary_of(_SLOT)

    second = nodes.fail_over(first)
    nodes.wait_healthy()
    assert nodes.primary_of(_SLOT) is second
    assert nodes.replicas_of(second) == [first]
    assert second.redis.get(_KEY) == "value"

    second.pause()
    assert nodes.fail_over(second, "FORCE") is first
    second.resume()
    nodes.wait_healthy()
    assert nodes.replicas_of(first) == [second]

    first.kill()
    assert nodes.fail_over(first, "TAKEOVER") is second
    assert second.redis.get(_KEY) == "value"


def test_a_killed_primary_is_replaced_and_comes_back_as_a_replica(
    own_cluster: OwnClusterFactory,
) -> None:
    nodes = own_cluster(extra_args=("--appendfsync", "always"))
    killed = nodes.primary_of(_SLOT)
    killed.redis.set(_KEY, "value")
    killed.redis.wait(1, 5000)
    killed.kill()
    with pytest.raises(pytest.fail.Exception, match="knows owners of"):
        nodes.wait_healthy(within_s=0.1)

    nodes.wait_healthy()
    heir = nodes.primary_of(_SLOT)
    assert heir is not killed
    assert heir.redis.get(_KEY) == "value"

    killed.start()
    nodes.wait_healthy()
    assert nodes.replicas_of(heir) == [killed]
    assert killed.redis.execute_command("ROLE")[0] == "slave"

    heir.restart()
    nodes.wait_healthy()
    assert nodes.primary_of(_SLOT).redis.get(_KEY) == "value"


def test_a_slot_can_be_held_half_way(own_cluster: OwnClusterFactory) -> None:
    nodes = own_cluster()
    source = nodes.primary_of(_SLOT)
    target = next(node for node in nodes.primaries() if node is not source)
    source.redis.mset({"{tag}1": "a", "{tag}2": "b"})

    move = nodes.slot_move(_SLOT, target).begin()
    assert sorted(move.keys()) == ["{tag}1", "{tag}2"]
    move.migrate("{tag}1")
    assert move.keys() == ["{tag}2"]
    assert nodes.primary_of(_SLOT) is source
    with pytest.raises(AskError, match=f"{_SLOT} {target.address}"):
        source.redis.get("{tag}1")
    with pytest.raises(TryAgainError):
        source.redis.mget("{tag}1", "{tag}2")
    assert source.redis.get("{tag}2") == "b"

    move.finish()
    nodes.wait_healthy()
    assert nodes.primary_of(_SLOT) is target
    assert target.redis.mget("{tag}1", "{tag}2") == ["a", "b"]

    back = nodes.slot_move(_SLOT, source).begin()
    back.cancel()
    assert nodes.primary_of(_SLOT) is target
    assert target.redis.get("{tag}1") == "a"


# the shared cluster


@pytest.fixture
def gone(server: TestServer) -> Iterator[list[str]]:
    """Prefixes without keys after the test; torn down after `ns`, which must be asked for later."""
    prefixes: list[str] = []
    yield prefixes
    assert [_keys(server.cluster, prefix) for prefix in prefixes] == [[]]


@pytest.mark.server("cluster")
def test_a_namespace_on_the_shared_cluster_is_removed_after_the_test(
    server: TestServer, gone: list[str], ns: str
) -> None:
    assert server.kind == "cluster"
    assert server.url == server.cluster.url
    gone.append(ns)
    with _client(server.cluster) as client:
        for number in range(30):
            client.set(f"{ns}:{number}", "value")
    assert len(_keys(server.cluster, ns)) == 30


@pytest.mark.server("cluster")
def test_calls_are_counted_at_the_node_that_ran_them(server: TestServer, ns: str) -> None:
    nodes = server.cluster
    owner = nodes.primary_of(_SLOT)
    key = f"{{tag}}{ns}"
    nodes.reset_calls()
    owner.redis.set(key, "value")
    owner.redis.get(key)
    assert {
        address: (calls.get("set", 0), calls.get("get", 0))
        for address, calls in nodes.calls().items()
    } == {node.address: (1, 1) if node is owner else (0, 0) for node in nodes.primaries()}
    nodes.remove(key)
    assert owner.redis.exists(key) == 0


@pytest.mark.server("cluster")
def test_nodes_keep_what_users_are_told_to_set(server: TestServer) -> None:
    for node in server.cluster.nodes:
        config: dict[str, str] = node.redis.config_get("*")
        assert config["appendonly"] == "yes"
        assert config["cluster-node-timeout"] == "2000"
        assert config["cluster-replica-validity-factor"] == "0"
        assert config["cluster-require-full-coverage"] == "no"


@pytest.mark.server("cluster")
def test_the_shared_cluster_cannot_be_emptied(server: TestServer) -> None:
    with pytest.raises(ResponseError, match="unknown command"):
        server.cluster.flush()


def test_the_summary_counts_clusters_and_sentinels() -> None:
    summary = Summary(ran_on=Counter(cluster=2, sentinel=1), versions={"cluster": "of valkey 9.1"})
    assert summary.lines()[0].endswith(
        "0 on fakeredis, 2 on cluster of valkey 9.1, 1 on sentinel, 0 on no server"
    )


# sentinels


@pytest.mark.parametrize("kind", _PROGRAMS)
def test_sentinels_name_the_new_primary(
    own_sentinel: OwnSentinelFactory, kind: ProgramKind
) -> None:
    group = own_sentinel(kind)
    first, second = group.servers
    assert group.primary() is first
    with redis.Redis.from_url(first.url) as client:
        client.set("key", "value")
        client.wait(1, 5000)

    assert group.fail_over() is second
    with redis.Redis.from_url(second.url, decode_responses=True) as client:
        assert client.get("key") == "value"

    group.wait_healthy()
    second.kill()
    assert group.wait_primary_after(second) is first
    hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in group.sentinels)
    assert group.url == f"redis+sentinel://{hosts}/redjob/0"


# TLS


def test_a_client_that_trusts_the_certificate_gets_through(
    own_server: OwnServerFactory, tmp_path: Path
) -> None:
    big = "x" * 3_000_000
    with (
        TlsProxy(own_server().port, tmp_path) as proxy,
        redis.Redis.from_url(proxy.url, decode_responses=True) as client,
    ):
        client.set("key", big)
        assert client.get("key") == big


def test_a_certificate_of_nobody_we_know_is_refused(
    own_server: OwnServerFactory, tmp_path: Path
) -> None:
    port = own_server().port
    with (
        TlsProxy(port, tmp_path) as proxy,
        TlsProxy(port, tmp_path, hostname="other.example") as stranger,
    ):
        for url in (proxy.plain_url, stranger.url):
            with (
                redis.Redis.from_url(url, retry=None) as client,
                pytest.raises(redis.ConnectionError, match="CERTIFICATE_VERIFY_FAILED"),
            ):
                client.ping()


def test_a_connection_ends_with_the_server_behind_it(
    own_server: OwnServerFactory, tmp_path: Path
) -> None:
    server = own_server()
    with (
        TlsProxy(server.port, tmp_path) as proxy,
        redis.Redis.from_url(proxy.url, retry=None) as client,
    ):
        client.ping()
        server.kill()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        server.start()
        assert client.ping()
