"""fire: how fast one scheduler moves jobs that are due from the sorted sets to the streams."""

from __future__ import annotations

from typing import Any

from redjob.bench.cost import CostMeter
from redjob.bench.floors import Floor
from redjob.bench.jobs import PAYLOAD_BYTES, doc_of, enqueue_delayed
from redjob.bench.meter import process_cpu_us
from redjob.bench.result import Row, tail
from redjob.bench.stage import Options, Stage, staged
from redjob.clock import Clock, SystemClock

JOBS = 200_000
_ENQUEUE_PER_S = 10_000  # at least; the jobs must not be due before all of them are there
_LIMIT_S = 300.0


def run(options: Options) -> Row:
    """Measure once: jobs become due while no scheduler runs, then one is started."""
    jobs = options.jobs_or(JOBS)
    clock: Clock = SystemClock()
    with staged(options, jobs) as stage:
        with stage.scheduler():
            pass  # opens the namespace
        due_ms, _ = enqueue_due(stage, jobs, clock)
        clock.sleep(max(0, due_ms + 50 - clock.wall_ms()) / 1000)
        row = Row(bench="fire", server=stage.server.label, jobs=jobs)
        _fire(stage, row, jobs)
        floor = Floor(stage.client, stage.namespace, doc_of(0))
        row.floor_per_s = round(floor.fire(jobs))
        floor.remove()
        row.floor_ratio = round((row.jobs_per_s or 0) / row.floor_per_s, 3)
        _count(stage, row, jobs, options)
    return row


def enqueue_due(stage: Stage, jobs: int, clock: Clock, first: int = 0) -> tuple[int, list[str]]:
    """Enqueue jobs, numbered from `first`, for one moment still ahead when the last one is in.

    Returns the moment (wall ms) and their ids.
    """
    ahead_ms = 2_000 + jobs * 1000 // _ENQUEUE_PER_S
    due_ms = clock.wall_ms() + ahead_ms
    ids = enqueue_delayed(stage, jobs, PAYLOAD_BYTES, lambda _: due_ms, first)
    return due_ms, ids


def _fire(stage: Stage, row: Row, jobs: int) -> None:
    client = stage.client
    streams = [queue.stream for queue in stage.queues]
    with stage.probe():
        meter = CostMeter(client)
        with stage.scheduler() as scheduler:
            stage.wait(stage.streamed, jobs, "fire", limit_s=_LIMIT_S, services=[scheduler])
            meter.into(row, jobs)
            used_us = process_cpu_us([scheduler.pid])
            row.scheduler_cpu_us_per_job = used_us and round(used_us / jobs, 1)
            row.client_cpu_us_per_job = None
    row.probe_ms = tail(stage.probe_ms)
    row.seconds = round(_span_s(stage, streams), 3)
    row.jobs_per_s = round(jobs / row.seconds) if row.seconds else None


def _span_s(stage: Stage, streams: list[str]) -> float:
    """Seconds between the first and the last entry, by the server's clock in their ids."""
    first: list[int] = []
    last: list[int] = []
    for stream in streams:
        found: Any = stage.client.xrange(stream, count=1)
        newest: Any = stage.client.xrevrange(stream, count=1)
        if found:
            first.append(int(found[0][0].split(b"-")[0]))
            last.append(int(newest[0][0].split(b"-")[0]))
    return (max(last) - min(first)) / 1000 if first else 0.0


def _count(stage: Stage, row: Row, jobs: int, options: Options) -> None:
    """Run what was fired, so that it is counted by what it does."""
    tally = stage.tally
    with stage.scheduler(), stage.worker(options.concurrency) as worker:
        stage.wait(lambda: tally.done, jobs, "counting", limit_s=_LIMIT_S, services=[worker])
    totals = tally.totals()
    row.lost, row.duplicated = totals.lost, totals.duplicated
