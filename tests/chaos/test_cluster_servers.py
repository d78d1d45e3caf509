"""What is done to a cluster's servers while they are used: slots move, scripts go, connections are cut.

Each thing is done a few times; REDJOB_CHAOS_TIMES=10 does it ten times.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from redjob.partitions import SLOTS
from tests.support.cluster_node import ClusterNode
from tests.support.turmoil import TIMES, loaded, told, wait_busy

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from redjob.keys import PartitionKeys
    from tests.chaos.conftest import SceneFactory
    from tests.support.cluster import ClusterNodes
    from tests.support.scene import Scene
    from tests.support.servers import OwnClusterFactory

pytestmark = [pytest.mark.slow, pytest.mark.solo, pytest.mark.timeout(120 + 20 * TIMES)]

_A_FEW_KEYS = 3
_EVERY_S = 0.25  # each cut costs a partition a takeover; more often, and little else is done
_COUNTED_S = 3.0  # an owner counts what waits once a second


def test_a_live_partition_moves_between_primaries_and_back_without_loss_or_double(
    scene: SceneFactory, own_cluster: OwnClusterFactory
) -> None:
    nodes = own_cluster()
    stage = scene(nodes.url_of(nodes.nodes), lease_s=5.0, heartbeat_s=1.0).open(workers=2)
    part = stage.keys.parts[5]
    home = nodes.primary_of(part.slot)
    away = next(node for node in nodes.primaries() if node is not home)
    with loaded(stage):
        for _ in range(TIMES):
            for target in (away, home):
                before = _seq(nodes, part)
                stage.wait(lambda: _seq(nodes, part) > before, what="it is in use")  # noqa: B023
                _move(nodes, part.slot, target)
                assert nodes.primary_of(part.slot) is target
        wait_busy(stage)
    stage.check_alive()
    history = stage.check()
    print(told(history))
    assert not history.gone
    assert not history.extra_starts
    assert not [line for line in _lines(stage) if "rolled_back" in line or "emptied" in line]


def _seq(nodes: ClusterNodes, part: PartitionKeys) -> int:
    return int(nodes.primary_of(part.slot).redis.hget(part.meta, "seq") or 0)


def _move(nodes: ClusterNodes, slot: int, target: ClusterNode) -> None:
    """Move a slot a few keys at a time, so that for a while it has keys on both sides."""
    move = nodes.slot_move(slot, target).begin()
    while keys := move.keys()[:_A_FEW_KEYS]:
        move.migrate(*keys)
    move.finish()


def test_scripts_that_go_and_connections_that_are_cut_cost_nothing(
    scene: SceneFactory, own_cluster: OwnClusterFactory
) -> None:
    nodes = own_cluster()
    stage = scene(nodes.url_of(nodes.nodes)).open(workers=2)
    rounds = 0

    def meddle() -> None:
        nonlocal rounds
        for node in nodes.nodes[:3]:
            node.redis.script_flush()
            node.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        rounds += 1

    with loaded(stage), _again_and_again(meddle):
        for _ in range(TIMES):
            wait_busy(stage)
    stage.check_alive()
    history = stage.check()
    print(told(history), f"in {rounds} rounds")
    assert rounds > TIMES
    assert not history.gone
    assert not [line for line in _lines(stage) if "NOSCRIPT" in line]


@contextmanager
def _again_and_again(act: Callable[[], None]) -> Generator[None]:
    done = threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            while not done.wait(_EVERY_S):
                act()
        except BaseException as exc:  # noqa: BLE001 - raised by who waits
            errors.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    assert not errors, errors


def test_a_primary_that_comes_back_empty_before_it_is_replaced_is_an_alarm(
    scene: SceneFactory, own_cluster: OwnClusterFactory
) -> None:
    nodes = own_cluster(extra_args=("--appendonly", "no"))
    stage = scene(nodes.url_of(nodes.nodes)).open(workers=1)
    victim = nodes.nodes[0]
    theirs = [part for part in stage.keys.parts if part.slot < SLOTS // 3]
    jobs = stage.load.many((12_000, {}) for _ in range(50) for _ in stage.keys.parts)
    gone = {job.id for job in jobs if stage.keys.of_job(job.id) in theirs}
    others = {job.id for job in jobs} - gone
    assert gone
    time.sleep(_COUNTED_S)
    incarnations = [victim.redis.hget(part.meta, "incarnation") for part in theirs]
    victim.kill()
    victim.start()
    assert victim in nodes.primaries()  # nobody has taken its place
    stage.wait(
        lambda: len(_emptied(stage)) == len(theirs), within_s=20, what="each partition is told"
    )
    told_jobs = {
        int(line.split("partition=")[1].split()[0]): int(line.split("known_jobs=")[1].split()[0])
        for line in _emptied(stage)
    }
    assert told_jobs.keys() == {part.index for part in theirs}
    assert sum(told_jobs.values()) == len(gone)
    opened = [victim.redis.hget(part.meta, "incarnation") for part in theirs]
    assert all(opened)
    assert not set(opened) & set(incarnations)
    anew = [stage.client.enqueue("work", {"number": 90_000 + n}, queue="q") for n in range(200)]
    there = {job.id for job in anew if stage.keys.of_job(job.id) in theirs}
    assert there
    want = others | {job.id for job in anew}
    stage.wait(
        lambda: {start.job for start in stage.began()} == want, within_s=30, what="the others run"
    )
    stage.drain()
    assert len(stage.began()) == len(want)
    stage.check_alive()


def _emptied(stage: Scene) -> list[str]:
    return [line for line in _lines(stage) if "event=redis_emptied" in line]


def _lines(stage: Scene) -> list[str]:
    return [line for service in stage.services for line in service.lines()]
