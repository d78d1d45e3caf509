"""Workers that die: what they ran is started again after its lease, told, and counted as a crash."""

from __future__ import annotations

import signal
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from redjob import JobState
from tests.support.scene import revive

if TYPE_CHECKING:
    from tests.chaos.conftest import SceneFactory
    from tests.support.scene import Scene

# A lease of 1 s, a sweep, a backoff of 1 s at most: 2 s, and ten times that on a busy machine.
SECONDS_MS = 20_000


def test_a_job_of_a_killed_worker_comes_back_after_its_lease_and_not_after_its_timeout(
    scene: SceneFactory,
) -> None:
    stage = scene(lease_s=1.0, heartbeat_s=0.25)
    stage.open()
    killed = stage.services[-1]
    days = timedelta(days=3)
    job = stage.client.enqueue("hold", {"number": 1}, queue="q", timeout_s=days.total_seconds())
    stage.wait_running(job)
    killed.kill()
    stage.start("worker")
    stage.wait(lambda: len(stage.began(job)) == 2, what="the second start")
    first, second = stage.began(job)
    assert first.pid == killed.pid != second.pid
    assert stage.lease_ms <= second.at_ms - first.at_ms < SECONDS_MS
    assert [line[1:4] for line in stage.extra_starts(job)] == [(job.id, 1, "lease_expired")]
    stage.release()
    assert job.result(timeout_s=10) == 1


def test_a_task_that_kills_its_own_process_is_a_crash_with_a_reason_and_runs_again(
    scene: SceneFactory,
) -> None:
    stage = scene(lease_s=1.0, heartbeat_s=0.25).open()
    worker = stage.services[-1]
    job = stage.job("kill_itself", times=1)
    stage.wait(lambda: not worker.alive, what="the task has killed its worker")
    assert worker.exit_code == -signal.SIGKILL
    stage.wait(lambda: job.info().crashes == 1, what="the crash is recorded")
    info = job.info()
    assert info.state in {JobState.SCHEDULED, JobState.DISPATCHED}
    assert (info.attempt, info.failures) == (1, 0)
    assert info.error is not None
    assert info.error.type == "WorkerCrashed"
    assert "attempt 1" in info.error.message
    worker.start()
    assert job.result(timeout_s=15) == stage.began(job)[0].number
    stage.drain()
    stage.check()


@pytest.mark.slow
def test_a_task_that_segfaults_is_dead_after_max_crashes_and_harms_nobody_else(
    scene: SceneFactory,
) -> None:
    stage = scene(lease_s=1.0, heartbeat_s=0.25).open(workers=2)
    workers = stage.services[-2:]
    text = "\u4e2d\u6587 \u0000 \u202e \U0001f4a5" * 50
    poison = stage.job("crash", text=text, delay_ms=300)
    record = stage.redis.get(stage.keys.of_job(poison.id).job(poison.id))
    others = [stage.job(delay_ms=100 * number, ms=20, max_crashes=9) for number in range(1, 60)]
    reviver = threading.Thread(
        target=revive, args=(workers[0],), kwargs={"until": lambda: _dead(stage), "within_s": 40}
    )
    reviver.start()
    revive(workers[1], until=lambda: _dead(stage), within_s=40)
    reviver.join()
    for worker in workers:
        if not worker.alive:
            worker.start()
    stage.wait(lambda: not stage.left(), within_s=30, what="the others have ended")
    info = poison.info()
    assert info.state is JobState.FAILED
    assert (info.attempt, info.crashes, info.failures) == (3, 3, 0)
    assert info.error is not None
    assert info.error.type == "WorkerCrashed"
    assert len(stage.began(poison)) == 3
    assert stage.redis.get(stage.keys.of_job(poison.id).job(poison.id)) == record
    assert all(other.state() is JobState.COMPLETED for other in others)
    stage.check()


@pytest.mark.slow
def test_what_runs_beside_tasks_that_kill_their_worker_is_not_taken_for_one_of_them(
    scene: SceneFactory,
) -> None:
    stage = scene(lease_s=1.0, heartbeat_s=0.25, concurrency=8).open()
    worker = stage.services[-1]
    poison = [stage.job("crash", delay_ms=300) for _ in range(3)]
    healthy = [stage.job(ms=1500) for _ in range(20)]
    revive(
        worker,
        until=lambda: _dead(stage) >= 3 and stage.left() == 0,
        within_s=90,
    )
    assert [job.info().crashes for job in poison] == [3, 3, 3]
    assert {job.state() for job in healthy} == {JobState.COMPLETED}
    stage.check()


def _dead(stage: Scene) -> int:
    return sum(stage.redis.zcard(part.queue("q").dead) for part in stage.keys.parts)


def test_an_attempt_whose_lease_was_deleted_goes_on_while_its_worker_lives(
    scene: SceneFactory,
) -> None:
    stage = scene(lease_s=2.0, heartbeat_s=0.1, scan_every_s=1.0).open()
    job = stage.job("hold")
    stage.wait_running(job)
    part = stage.keys.of_job(job.id)
    assert stage.redis.delete(part.running) == 1
    stage.wait(lambda: stage.redis.zscore(part.running, job.id), what="the lease is back")
    time.sleep(2 * stage.settings.scan_every_s)
    stage.release()
    stage.drain()
    assert len(stage.began(job)) == 1
    stage.check()


def test_an_attempt_without_a_lease_and_without_a_worker_is_found_and_ended(
    scene: SceneFactory,
) -> None:
    stage = scene(lease_s=1.0, heartbeat_s=0.25, scan_every_s=0.5).open()
    job = stage.job("hold")
    stage.wait_running(job)
    stage.services[-1].kill()
    assert stage.redis.delete(stage.keys.of_job(job.id).running) == 1
    stage.start("worker")
    stage.release()
    stage.drain()
    assert job.state() is JobState.COMPLETED
    assert len(stage.began(job)) == 2
    assert [line.attempt for line in stage.extra_starts(job)] == [1]
    assert job.info().result == stage.began(job)[0].number
