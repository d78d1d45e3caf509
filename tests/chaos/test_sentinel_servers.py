"""Under sentinels: an old primary that comes back with old data after the new one has stopped."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.chaos.conftest import SceneFactory
    from tests.support.scene import Scene
    from tests.support.servers import OwnSentinelFactory

pytestmark = [pytest.mark.slow, pytest.mark.solo, pytest.mark.timeout(180)]


def test_an_old_primary_that_comes_back_alone_is_told_with_what_it_does_not_know(
    scene: SceneFactory, own_sentinel: OwnSentinelFactory
) -> None:
    servers = own_sentinel()
    stage = scene(servers.url).open(workers=1)
    early = [stage.job(delay_ms=18_000) for _ in range(30)]
    old = servers.primary()
    assert old is not None
    old.kill()
    new = servers.wait_primary_after(old)
    stage.wait(lambda: _told(stage, "server_replaced"), within_s=30, what="the new one is noticed")
    stage.wait_running(*[stage.job() for _ in range(20)])
    late = [stage.job(delay_ms=60_000) for _ in range(20)]
    stage.wait_running(stage.job(delay_ms=200))  # by then the owner has read of all before
    new.kill()
    old.start()
    stage.wait(
        lambda: len(stage.began(*early)) == len(early), within_s=60, what="what it knows runs"
    )
    assert servers.primary() is old
    assert _named(stage, "job_lost_possible") >= {job.id for job in late}
    changed = {stage.keys.of_job(job.id).index for job in late}
    rolled_back = [
        re.search(r"partition=(\d+) from_seq=(\d+) to_seq=(\d+)", line)
        for line in _told(stage, "journal_rolled_back")
    ]
    found = {int(line[1]) for line in rolled_back if line and int(line[2]) > int(line[3])}
    assert changed <= found
    after = [stage.job() for _ in range(20)]
    stage.wait_running(*after)
    stage.drain()
    assert len(stage.began(*early, *after)) == len(early) + len(after)
    assert not stage.began(*late)
    stage.check_alive()


def _told(stage: Scene, event: str) -> list[str]:
    return [
        line for service in stage.services for line in service.lines() if f"event={event} " in line
    ]


def _named(stage: Scene, event: str) -> set[str]:
    return {line.job for line in stage.told() if line.event == event}
