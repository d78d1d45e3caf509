"""One start for one job: nothing that goes on around a job makes it start a second time."""

from __future__ import annotations

import asyncio
import time
from random import Random
from typing import TYPE_CHECKING

from redjob.config import WorkerConfig
from redjob.worker.node import WorkerNode
from tests.support.processes import wait_until
from tests.support.tasks import app_of

if TYPE_CHECKING:
    from tests.chaos.conftest import SceneFactory
    from tests.support.settings import RunSettings


def test_a_delayed_job_is_held_by_no_worker_and_starts_once_far_beyond_the_lease(
    scene: SceneFactory,
) -> None:
    stage = scene(lease_s=0.5, heartbeat_s=0.1).open(workers=3)
    jobs = [stage.job(delay_ms=delay_ms) for delay_ms in (600, 1500, 2500, 4000)]
    due_ms = {asked.id: asked.run_at_ms for asked in stage.load.asked}
    last_ms = max(due_ms.values())
    while time.time_ns() // 1_000_000 < last_ms - 100:
        held = [stage.redis.hlen(part.runs) for part in stage.keys.parts]
        waiting = sum(stage.redis.zcard(part.queue("q").due) for part in stage.keys.parts)
        assert waiting or sum(held) == 0
        assert all(start.at_ms >= due_ms[start.job] for start in stage.began())
        time.sleep(0.05)
    stage.drain()
    assert sorted(start.job for start in stage.began()) == sorted(job.id for job in jobs)
    assert not stage.extra_starts()
    stage.check()


def test_workers_that_start_leave_the_live_leases_of_others_alone(scene: SceneFactory) -> None:
    stage = scene(concurrency=20, lease_s=1.0, heartbeat_s=0.25).open()
    jobs = [stage.job("hold") for _ in range(20)]
    stage.wait_running(*jobs)
    newcomers = [stage.start("worker") for _ in range(5)]
    for worker in newcomers:
        worker.wait_for("event=worker_started")
    time.sleep(2 * stage.settings.lease_s)
    assert not stage.ended()  # else it would show nothing
    stage.release()
    stage.drain()
    assert len(stage.began()) == 20
    assert not stage.extra_starts()
    stage.check()


def test_thirty_workers_that_come_and_go_take_no_job_from_each_other(scene: SceneFactory) -> None:
    stage = scene(lease_s=1.0, heartbeat_s=0.25)
    stage.start("scheduler")
    stage.start("sweeper")
    wait_until(stage.is_open, within_s=30, what="open")
    rng = Random(3)
    for number in range(120):
        stage.job(
            delay_ms=rng.randrange(1, 8000), ms=rng.choice((50, 1500, 2500)), number=1 + number
        )
    asyncio.run(_come_and_go(stage.settings, rng))
    stage.start("worker")
    stage.drain()
    assert not [line for line in stage.extra_starts() if line.cause == "lease_expired"]
    assert len(stage.began()) == 120
    stage.check()


async def _come_and_go(settings: RunSettings, rng: Random) -> None:
    """Let 30 workers live for a part of ten seconds each; all finish what they have begun."""

    async def live() -> None:
        await asyncio.sleep(rng.uniform(0, 7))
        node = WorkerNode(app_of(settings), _small(settings))
        running = asyncio.create_task(node.run())
        await asyncio.sleep(rng.uniform(0, 3))
        node.stop()
        await running

    await asyncio.gather(*(live() for _ in range(30)))


def _small(settings: RunSettings) -> WorkerConfig:
    return WorkerConfig(
        queues=settings.queues,
        concurrency=8,
        lease_s=settings.lease_s,
        heartbeat_s=settings.heartbeat_s,
    )
