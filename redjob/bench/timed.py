"""timing and burst: how punctually delayed jobs start, spread over a while or all at one instant."""

from __future__ import annotations

from collections.abc import Sequence

from redjob.bench.jobs import arguments, at
from redjob.bench.processes import Service
from redjob.bench.result import Row, spread, tail
from redjob.bench.stage import Options, Stage, staged
from redjob.clock import SystemClock

TIMING_JOBS = 2_000
BURST_JOBS = 5_000
WINDOW_MS = 10_000
AHEAD_MS = 5_000
LATE_MS = 6_000  # after the last due time: what has not started by then is lost
_WARM = 64  # jobs that let each worker work once before the clock runs


def run_timing(options: Options) -> Row:
    """Measure once: jobs due evenly over 10 s that begin 5 s ahead."""
    return _run("timing", options, options.jobs_or(TIMING_JOBS), WINDOW_MS)


def run_burst(options: Options) -> Row:
    """Measure once: jobs due at one instant, 5 s ahead."""
    return _run("burst", options, options.jobs_or(BURST_JOBS), 0)


def _run(bench: str, options: Options, jobs: int, window_ms: int) -> Row:
    with staged(options, jobs + _WARM) as stage, stage.scheduler() as scheduler:
        spare = range(jobs, jobs + _WARM)
        with stage.warm_workers(options.workers, options.concurrency, spare) as workers:
            row = Row(
                bench=bench,
                server=stage.server.label,
                jobs=jobs,
                workers=options.workers,
                concurrency=options.concurrency,
            )
            with stage.probe():
                first_ms = SystemClock().wall_ms() + AHEAD_MS
                due_ms = [first_ms + index * window_ms // jobs for index in range(jobs)]
                _enqueue(stage, due_ms)
                _wait(stage, due_ms, [*workers, scheduler])
            _judge(stage, row, due_ms)
    return row


def _enqueue(stage: Stage, due_ms: Sequence[int]) -> None:
    for index, when in enumerate(due_ms):
        stage.noop.enqueue_at(at(when), *arguments(index))
    if SystemClock().wall_ms() >= due_ms[0]:
        raise RuntimeError("enqueueing took longer than the jobs were ahead; use fewer --jobs")


def _wait(stage: Stage, due_ms: Sequence[int], services: list[Service]) -> None:
    jobs, tally = range(len(due_ms)), stage.tally
    left_s = (due_ms[-1] + LATE_MS - SystemClock().wall_ms()) / 1000
    stage.wait(
        lambda: tally.totals(jobs).done, len(jobs), "timing", limit_s=left_s, services=services
    )
    SystemClock().sleep(0.5)  # a second start of a job would come late


def _judge(stage: Stage, row: Row, due_ms: Sequence[int]) -> None:
    jobs = range(len(due_ms))
    totals = stage.tally.totals(jobs)
    starts = stage.tally.starts_ns(jobs)
    late_ms = [
        (start - due * 1_000_000) / 1e6
        for start, due in zip(starts, due_ms, strict=True)
        if start is not None
    ]
    last_ns = max((start for start in starts if start is not None), default=0)
    row.seconds = round(last_ns / 1e9 - due_ms[0] / 1000, 3)
    row.lateness_ms = spread(late_ms)
    row.early = sum(1 for late in late_ms if late < 0)
    row.lost, row.duplicated = totals.lost, totals.duplicated
    row.probe_ms = tail(stage.probe_ms)
