"""Workers and Redis that go and come back: nothing is lost on the way, nothing waits for long."""

from __future__ import annotations

import signal
import threading
import time
from random import Random
from typing import TYPE_CHECKING

import pytest

from redjob import Client, JobState
from tests.support.forks import Forks
from tests.support.history import Asked
from tests.support.runner import ShiftedClock

if TYPE_CHECKING:
    from tests.chaos.conftest import SceneFactory
    from tests.support.processes import Service
    from tests.support.scene import Scene
    from tests.support.servers import OwnServerFactory

POINTS = 120


@pytest.mark.slow
def test_a_worker_that_ends_at_any_point_of_its_fetching_loses_no_job(scene: SceneFactory) -> None:
    stage = scene(concurrency=8, lease_s=1.0, heartbeat_s=0.25, stop_grace_s=0.05)
    forks = Forks.of(stage)
    stage.start("scheduler")
    stage.start("sweeper")
    stage.wait(stage.is_open, what="open")
    rng = Random(5)
    codes: list[int] = []
    for point in range(POINTS):
        for _ in range(10):
            stage.job(ms=rng.randrange(10), max_crashes=50)
        pid = forks.start()
        time.sleep(rng.uniform(0.0, 0.08))
        codes.append(forks.end(pid, signal.SIGTERM if point % 2 else signal.SIGKILL))
    # one that is asked so early that it does not listen yet is killed by that
    assert set(codes) <= {0, -signal.SIGTERM, -signal.SIGKILL}
    assert codes.count(0) > POINTS / 8
    assert len(stage.began()) > POINTS  # else they had ended before they fetched
    stage.start("worker")
    stage.drain(within_s=60)
    history = stage.check()
    assert {line.cause for line in history.extra_starts.values()} >= {"lease_expired"}


def test_a_worker_that_is_asked_to_stop_hands_back_what_does_not_end_in_time(
    scene: SceneFactory,
) -> None:
    stage = scene(lease_s=30.0, heartbeat_s=10.0, stop_grace_s=0.3).open()
    stopping = stage.services[-1]
    jobs = [stage.job("hold"), stage.job("hold"), stage.job("work_in_thread", ms=100)]
    stage.wait_running(*jobs)
    stage.start("worker").wait_for("event=worker_started")
    assert stopping.stop() == 0
    stage.wait(lambda: len(stage.began(*jobs[:2])) == 4, what="both have begun again")
    for job in jobs[:2]:
        first, second = stage.began(job)
        assert second.at_ms - first.at_ms < stage.lease_ms  # far before its lease would have ended
        info = job.info()
        assert (info.attempt, info.failures, info.crashes) == (2, 0, 0)
        assert [line.cause for line in stage.extra_starts(job)] == ["handed_back"]
    stage.release()
    stage.drain()
    assert len(stage.began(jobs[2])) == 1
    stage.check()


@pytest.mark.slow
def test_a_rolling_restart_of_all_workers_neither_loses_nor_repeats_delayed_jobs(
    scene: SceneFactory,
) -> None:
    stage = scene(lease_s=2.0, stop_grace_s=2.0).open(workers=3)
    workers = stage.services[-3:]
    rng = Random(7)
    jobs = stage.load.many((rng.randrange(6000, 11_000), {"ms": 5}) for _ in range(2000))
    _restart_each(workers)
    if not stage.began():
        assert _delayed(stage) == len(jobs)
    while stage.left():
        _restart_each(workers)
    assert sorted(start.job for start in stage.began()) == sorted(job.id for job in jobs)
    stage.check()


def _restart_each(workers: list[Service]) -> None:
    for worker in workers:
        assert worker.stop() == 0
        worker.start()
        worker.wait_for("event=worker_started")


def _delayed(stage: Scene) -> int:
    return sum(stage.redis.zcard(part.queue("q").due) for part in stage.keys.parts)


@pytest.mark.solo
@pytest.mark.parametrize("way", ["killed", "stopped"])
def test_delayed_jobs_fire_within_a_second_of_a_restarted_redis(
    scene: SceneFactory, own_server: OwnServerFactory, way: str
) -> None:
    server = own_server()
    stage = scene(server.url).open()
    jobs = [stage.job(delay_ms=delay_ms) for delay_ms in (1500, 2500, 3000, 3500, 4500)]
    late = stage.job(delay_ms=60_000)
    time.sleep(2.0)
    if way == "killed":
        server.kill()
    else:
        server.stop()
    time.sleep(0.8)
    server.start()
    ready_ms = time.time_ns() // 1_000_000
    stage.wait(lambda: len(stage.began(*jobs)) == len(jobs), what="all but one have begun")
    due_ms = {asked.id: asked.run_at_ms for asked in stage.load.asked}
    waited_ms = {
        due_ms[start.job] - ready_ms: start.at_ms - max(due_ms[start.job], ready_ms)
        for start in stage.began(*jobs)[1:]
    }
    assert all(waited <= 1000 for waited in waited_ms.values()), waited_ms
    assert late.state() is JobState.SCHEDULED
    late.cancel()
    stage.drain()
    assert len(stage.began()) == len(jobs)


def test_scripts_that_the_server_forgets_are_sent_again_and_do_nothing_twice(
    scene: SceneFactory,
) -> None:
    stage = scene().open(workers=2)
    flushing = threading.Event()

    def flush() -> None:
        while not flushing.wait(0.02):
            stage.redis.script_flush()

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            time.sleep(0.003)
            stage.load.one()
            stage.load.cancel_some()
    finally:
        flushing.set()
        thread.join()
    stage.drain()
    stage.check()
    noscript = [
        line for service in stage.services for line in service.lines() if "NOSCRIPT" in line
    ]
    assert not noscript
    stage.check_alive()


@pytest.mark.parametrize("minutes", [10, -10])
def test_wrong_clocks_of_workers_schedulers_and_sweepers_change_nothing(
    scene: SceneFactory, minutes: int
) -> None:
    shift_ms = minutes * 60_000
    stage = scene(lease_s=1.0, heartbeat_s=0.25)
    stage.start("scheduler", clock_shift_ms=shift_ms)
    stage.start("sweeper", clock_shift_ms=-shift_ms)
    stage.start("worker", clock_shift_ms=-shift_ms)
    stage.start("worker", clock_shift_ms=shift_ms)
    stage.wait(stage.is_open, what="open")
    with Client(
        stage.settings.url, namespace=stage.settings.namespace, clock=ShiftedClock(shift_ms)
    ) as client:
        far = client.enqueue_in(3600.0, "work", {"number": 10_000}, queue="q").info()
    assert abs((far.run_at_ms or 0) - time.time_ns() // 1_000_000 - 3_600_000) < 60_000
    stage.load.asked.append(Asked(number=10_000, id=far.id))
    stage.client.cancel(far.id)
    stage.job(ms=2500)
    stage.job("work_in_thread", ms=2500)
    for number in range(40):
        stage.job(delay_ms=50 * number, fails=number % 3)
    stage.drain()
    assert not stage.extra_starts()
    due_ms = {asked.id: asked.run_at_ms for asked in stage.load.asked if asked.run_at_ms}
    first = [start for start in stage.began() if start.attempt == 1 and start.job in due_ms]
    assert all(0 <= start.at_ms - due_ms[start.job] < abs(shift_ms) / 10 for start in first)
    stage.check()
