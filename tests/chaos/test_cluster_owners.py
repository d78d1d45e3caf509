"""Schedulers that believe they own a partition when they do not: their fenced calls have no effect.

Each is stopped twice; REDJOB_CHAOS_TIMES=10 does it ten times.
"""

from __future__ import annotations

import re
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from redjob.calls.overview import present
from redjob.config import SchedulerConfig
from tests.support.turmoil import TIMES, loaded, told, wait_busy

if TYPE_CHECKING:
    from tests.chaos.conftest import SceneFactory
    from tests.support.processes import Service
    from tests.support.scene import Scene
    from tests.support.servers import OwnClusterFactory

pytestmark = [pytest.mark.slow, pytest.mark.solo, pytest.mark.timeout(120 + 30 * TIMES)]

_LET_GO = re.compile(r"event=(lease_lost|partitions?_closed) .*cause=(no_answer|lease|fenced)")
_WATCHED_S = 0.75 * SchedulerConfig().join_delay_ms / 1000  # later it may have its share again
_STOPPED_S = 3 * SchedulerConfig().lease_ttl_ms / 1000


def test_a_scheduler_that_sleeps_past_its_leases_changes_nothing_when_it_wakes_up(
    scene: SceneFactory, own_cluster: OwnClusterFactory
) -> None:
    nodes = own_cluster()
    # Only the one that is stopped trims, and all the time: what it may not do would be seen.
    stage = scene(nodes.url_of(nodes.nodes), trim_every_s=3600.0).open(workers=2)
    sleeper = stage.start("scheduler", trim_every_s=0.05)
    with loaded(stage):
        for _ in range(TIMES):
            wait_busy(stage)
            _sleep_through(stage, sleeper)
        wait_busy(stage)
    stage.check_alive()
    history = stage.check()
    print(told(history))
    assert not history.gone
    assert not history.extra_starts


def _sleep_through(stage: Scene, sleeper: Service) -> None:
    """Stop a scheduler until others have all it had, and see what it does when it goes on."""
    me = _name_of(sleeper)
    stage.wait(lambda: len(_owned_by(stage, me)) > 10, what="it has its share")
    mine = _owned_by(stage, me)
    epochs = _epochs(stage, mine)
    sleeper.send(signal.SIGSTOP)
    stopped = time.monotonic()
    stage.wait(lambda: not _owned_by(stage, me), what="its leases have ended")
    stage.wait(
        lambda: all(map(int.__lt__, epochs, _epochs(stage, mine))), what="others have opened them"
    )
    # as long as it takes: others work meanwhile, and it wakes up to leases of the past
    time.sleep(max(0.0, stopped + _STOPPED_S - time.monotonic()))
    owners, heads = _owners(stage, mine), _heads(stage, mine)
    sleeper.send(signal.SIGCONT)
    woke = time.monotonic()
    while time.monotonic() - woke < _WATCHED_S:
        assert _owners(stage, mine) == owners
        assert _heads(stage, mine) == heads
    assert any(_LET_GO.search(line) for line in sleeper.lines()), sleeper.tail()


def _name_of(scheduler: Service) -> str:
    scheduler.wait_for("event=scheduler_started")
    found = re.search(r"event=scheduler_started node=(\S+)", "\n".join(scheduler.lines()))
    assert found is not None
    return found[1]


def _owned_by(stage: Scene, node: str) -> set[int]:
    owners = stage.client.store.query(present(stage.settings.namespace)).owners
    return {index for index, name in owners.items() if name == node}


def _owners(stage: Scene, indexes: set[int]) -> list[Any]:
    return [stage.redis.hgetall(stage.keys.parts[index].owner) for index in sorted(indexes)]


def _epochs(stage: Scene, indexes: set[int]) -> list[int]:
    return [
        int(stage.redis.hget(stage.keys.parts[index].owner, "epoch") or 0)
        for index in sorted(indexes)
    ]


def _heads(stage: Scene, indexes: set[int]) -> list[Any]:
    """The oldest entry of each journal: whoever trims one moves it."""
    found: list[Any] = []
    for index in sorted(indexes):
        oldest: Any = stage.redis.xrange(stage.keys.parts[index].journal, count=1)
        found.append(oldest[0][0] if oldest else None)
    return found
