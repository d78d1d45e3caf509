"""A network that falls apart: a primary and a scheduler on one side, everything else on the other."""

from __future__ import annotations

import re
import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
import pytest

from redjob.calls.overview import present
from redjob.embedded import EmbeddedServer, find_server
from redjob.embedded.cluster import CONFIG
from redjob.embedded.ports import free_ports
from redjob.errors import StoreUnavailable
from tests.support.cluster_node import ClusterNode
from tests.support.netns import OtherNetwork, need_networks
from tests.support.turmoil import loaded, told, wait_busy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.chaos.conftest import SceneFactory
    from tests.support.cluster import ClusterNodes
    from tests.support.processes import Service
    from tests.support.scene import Scene
    from tests.support.servers import OwnClusterFactory

pytestmark = [pytest.mark.slow, pytest.mark.solo, pytest.mark.timeout(240)]

_LET_GO_WITHIN_S = 3.0  # a lease lasts 1 s; the rest is for a busy machine


@pytest.fixture
def other() -> Iterator[OtherNetwork]:
    """The side that will be the smaller one."""
    need_networks()
    with OtherNetwork() as network:
        yield network


def test_who_is_cut_off_lets_go_and_the_others_go_on(
    other: OtherNetwork, scene: SceneFactory, own_cluster: OwnClusterFactory, tmp_path: Path
) -> None:
    nodes = own_cluster(extra_args=_reachable_at(other.here))
    far = _move_over(nodes, other, tmp_path)
    urls = [f"{other.there if node is far else other.here}:{node.port}" for node in nodes.nodes]
    url = f"redis+cluster://{','.join(urls)}"
    stage = scene(url).open(workers=2)
    there = _scheduler_in(other, stage)
    me = _name_of(there)
    with loaded(stage):
        stage.wait(lambda: len(_owned_by(stage, me)) > 10, what="it has its share")
        mine = _owned_by(stage, me)
        wait_busy(stage)
        replicas = nodes.replicas_of(far)
        other.cut()
        cut_ms = time.time_ns() // 1_000_000
        there.wait_for("event=lease_lost")
        stage.wait(lambda: set(replicas) & set(nodes.primaries()), what="a replica is elected")
        stage.wait(lambda: not _owned_by(stage, me) & mine, what="the others own all")
        for _ in range(2):
            wait_busy(stage)
        stage.wait(
            lambda: "cluster_state:fail" in far.command("CLUSTER", "INFO"),
            what="the primary over there serves nobody",
        )
        other.mend()
        nodes.wait_healthy()
        stage.wait(lambda: len(_owned_by(stage, me)) > 10, what="it has its share again")
        wait_busy(stage)
    let_go_ms = min(_times_of(there, "lease_lost"))
    assert 0 < let_go_ms - cut_ms < _LET_GO_WITHIN_S * 1000
    stage.check_alive()
    print(told(stage.check()))


def _reachable_at(address: str, *more: str) -> tuple[str, ...]:
    return (
        *("--bind", "127.0.0.1", address, *more, "--protected-mode", "no"),
        *("--cluster-announce-ip", address),
    )


def _move_over(nodes: ClusterNodes, other: OtherNetwork, directory: Path) -> ClusterNode:
    """Put a node into the other network, in the place of the first primary, which follows it."""
    port, bus_port = free_ports(2)
    other.forward(port)
    old = nodes.nodes[0]
    old_binary = find_server()
    assert old_binary is not None
    server = EmbeddedServer(
        directory / "far",
        port=port,
        binary=other.program(old_binary.path, directory),
        extra_args=(
            *("--cluster-enabled", "yes", "--cluster-port", str(bus_port)),
            *CONFIG,
            *_reachable_at(other.there, other.control),
        ),
    )
    far = ClusterNode(server.start())
    nodes.nodes.append(far)
    old.command("CLUSTER", "MEET", other.there, port, bus_port)
    nodes.follow(far, old)
    nodes.wait_healthy()
    far.command("CLUSTER", "FAILOVER")
    nodes.wait_primary(far)
    nodes.wait_healthy()
    return far


def _scheduler_in(other: OtherNetwork, stage: Scene) -> Service:
    text = msgspec.json.encode(stage.settings).decode()
    command = other.command(sys.executable, "-m", "tests.support.runner", "scheduler", text)
    return stage.run("far-scheduler", command)


def _name_of(scheduler: Service) -> str:
    scheduler.wait_for("event=scheduler_started")
    found = re.search(r"event=scheduler_started node=(\S+)", "\n".join(scheduler.lines()))
    assert found is not None
    return found[1]


def _owned_by(stage: Scene, node: str) -> set[int]:
    try:
        owners = stage.client.store.query(present(stage.settings.namespace)).owners
    except StoreUnavailable:
        return set(range(stage.keys.partitions))  # nobody says that it is not
    return {index for index, name in owners.items() if name == node}


def _times_of(service: Service, event: str) -> list[int]:
    """When a service logged an event, wall ms."""
    stamps = [line.split()[0].removeprefix("ts=") for line in service.lines() if event in line]
    return [round(datetime.fromisoformat(stamp).timestamp() * 1000) for stamp in stamps]
