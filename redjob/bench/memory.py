"""memory: what a delayed job costs the server while it waits, and that a sample of them still runs."""

from __future__ import annotations

import random

from redjob.bench.app import QUEUE
from redjob.bench.floors import Floor
from redjob.bench.jobs import at, doc_of, enqueue_delayed
from redjob.bench.meter import used_memory
from redjob.bench.result import Row, tail
from redjob.bench.stage import Options, Stage, staged
from redjob.client import Client
from redjob.clock import SystemClock

JOBS = 20_000
PAYLOAD_BYTES = 500
SAMPLE = 1_000
SERVER_ARGUMENTS = ("--hash-max-listpack-value", "1024")
_HOUR_MS = 3_600_000
_WINDOW_MS = 600_000
_SAMPLE_AHEAD_MS = 3_000
_LIMIT_S = 60.0
_TRIMMED_S = 5.0  # a scheduler keeps the journal's last seconds


def run(options: Options) -> Row:
    """Measure once. The journal counts, trimmed by a scheduler as in life."""
    jobs = options.jobs_or(JOBS)
    clock = SystemClock()
    with staged(options, jobs, SERVER_ARGUMENTS) as stage, stage.scheduler() as scheduler:
        row = Row(bench="memory", server=stage.server.label, jobs=jobs)
        with stage.probe(), Client(stage.server.url, namespace=stage.namespace) as client:
            clock.sleep(1.0)  # what connections and services need is not the jobs'
            before = used_memory(stage.client)
            first_ms = clock.wall_ms() + _HOUR_MS
            ids = enqueue_delayed(
                stage, jobs, PAYLOAD_BYTES, lambda number: first_ms + number * _WINDOW_MS // jobs
            )
            clock.sleep(_TRIMMED_S)
            row.bytes_per_job = round((used_memory(stage.client) - before) / jobs)
            sample = random.Random(jobs).sample(range(jobs), min(SAMPLE, jobs))
            with stage.worker(options.concurrency) as worker:
                due_ms = clock.wall_ms() + _SAMPLE_AHEAD_MS
                for index in sample:
                    client.reschedule(ids[index], at(due_ms), queue=QUEUE)
                tally = stage.tally
                stage.wait(
                    lambda: tally.done,
                    len(sample),
                    "sample",
                    limit_s=_LIMIT_S,
                    services=[worker, scheduler],
                )
        _judge(stage, row, sample)
    return row


def _judge(stage: Stage, row: Row, sample: list[int]) -> None:
    totals = stage.tally.totals()
    row.lost = len(sample) - totals.done
    row.duplicated = totals.duplicated
    row.early = sum(
        start is not None and index not in sample_set
        for sample_set in [set(sample)]
        for index, start in enumerate(stage.tally.starts_ns(range(stage.tally.jobs)))
    )
    row.probe_ms = tail(stage.probe_ms)
    floor = Floor(stage.client, stage.namespace, doc_of(0, PAYLOAD_BYTES, SystemClock().wall_ms()))
    row.floor_bytes_per_job = round(floor.bytes_per_job(row.jobs))
    floor.remove()
    if row.bytes_per_job:
        row.floor_ratio = round(row.floor_bytes_per_job / row.bytes_per_job, 3)
