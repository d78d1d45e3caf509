"""drain: how fast workers run jobs that are all there already, from the first start to the last."""

from __future__ import annotations

import contextlib

from redjob.bench.cost import CostMeter
from redjob.bench.floors import Floor
from redjob.bench.jobs import accepted, arguments, doc_of
from redjob.bench.result import Row, tail
from redjob.bench.stage import Options, Stage, staged

JOBS = 20_000
_LIMIT_S = 120.0


def run(options: Options) -> Row:
    """Measure once. The scheduler runs beside it, as in life: it follows and trims the journal."""
    jobs = options.jobs_or(JOBS)
    with staged(options, jobs) as stage, stage.scheduler() as scheduler:
        row = Row(
            bench="drain",
            server=stage.server.label,
            jobs=jobs,
            workers=options.workers,
            concurrency=options.concurrency,
        )
        accepted(stage.noop.enqueue_many([arguments(index) for index in range(jobs)]))
        with stage.probe(), contextlib.ExitStack() as stack:
            workers = [
                stack.enter_context(stage.worker(options.concurrency))
                for _ in range(options.workers)
            ]
            meter = CostMeter(stage.client, workers=workers, schedulers=[scheduler])
            tally = stage.tally
            stage.wait(
                lambda: tally.done, jobs, "drain", limit_s=_LIMIT_S, services=[*workers, scheduler]
            )
            wait_reported(stage)
            meter.into(row, jobs)
        _count(stage, row)
        _floor(stage, row, jobs)
    return row


def wait_reported(stage: Stage) -> None:
    """The last jobs have started; their ends are part of what they cost."""

    def ended() -> int:
        return int(not stage.counted("ZCARD", [part.running for part in stage.keys.parts]))

    stage.wait(ended, 1, "last reports", limit_s=10.0)


def _count(stage: Stage, row: Row) -> None:
    totals = stage.tally.totals()
    seconds = stage.tally.span_s()
    row.seconds = round(seconds, 3)
    row.jobs_per_s = round(totals.done / seconds) if seconds else None
    row.lost, row.duplicated = totals.lost, totals.duplicated
    row.probe_ms = tail(stage.probe_ms)


def _floor(stage: Stage, row: Row, jobs: int) -> None:
    floor = Floor(stage.client, stage.namespace, doc_of(0))
    floor.enqueue(jobs)
    row.floor_per_s = round(floor.drain(jobs))
    floor.remove()
    row.floor_ratio = round((row.jobs_per_s or 0) / row.floor_per_s, 3)
