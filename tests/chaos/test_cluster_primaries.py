"""Primaries of a cluster are replaced under load, in each way there is: what that may cost is told.

Each thing is done twice; REDJOB_CHAOS_TIMES=10 does it ten times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

from tests.support.turmoil import TIMES, loaded, told, wait_busy

if TYPE_CHECKING:
    from tests.chaos.conftest import SceneFactory
    from tests.support.cluster import ClusterNodes
    from tests.support.cluster_node import ClusterNode
    from tests.support.servers import OwnClusterFactory

pytestmark = [pytest.mark.slow, pytest.mark.solo, pytest.mark.timeout(120 + 30 * TIMES)]

Way = Literal["handed over", "forced", "taken", "killed"]


@pytest.mark.parametrize("way", ["handed over", "forced", "taken", "killed"])
def test_nothing_is_lost_or_doubled_in_silence_while_primaries_are_replaced(
    scene: SceneFactory, own_cluster: OwnClusterFactory, way: Way
) -> None:
    nodes = own_cluster()
    stage = scene(nodes.url_of(nodes.nodes)).open(workers=2)
    with loaded(stage):
        for number in range(TIMES):
            wait_busy(stage)
            victim = nodes.primaries()[number % 3]
            _replace(nodes, victim, way)
            nodes.wait_healthy()
        wait_busy(stage)
    stage.check_alive()
    history = stage.check()
    print(told(history))
    if way == "handed over":
        assert not history.gone


@pytest.mark.parametrize("way", ["forced", "taken", "killed"])
def test_what_a_replica_has_said_to_have_is_never_lost(
    scene: SceneFactory, own_cluster: OwnClusterFactory, way: Way
) -> None:
    nodes = own_cluster()
    stage = scene(nodes.url_of(nodes.nodes), ack="replicated").open(workers=2)
    with loaded(stage):
        for number in range(TIMES):
            wait_busy(stage)
            _replace(nodes, nodes.primaries()[number % 3], way)
            nodes.wait_healthy()
        wait_busy(stage)
    stage.check_alive()
    history = stage.check()
    print(told(history))
    assert not {job for job in history.gone if not history.begun_of.get(job)}


def _replace(nodes: ClusterNodes, victim: ClusterNode, way: Way) -> None:
    match way:
        case "handed over":
            nodes.fail_over(victim)
        case "forced":
            nodes.fail_over(victim, "FORCE")
        case "taken":
            nodes.fail_over(victim, "TAKEOVER")
        case "killed":
            replica = nodes.replicas_of(victim)[0]
            victim.kill()
            nodes.wait_primary(replica)
            victim.start()
