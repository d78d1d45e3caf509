"""sustained: delayed jobs at a steady rate through one scheduler and one worker, for half a minute.

No probe decides whether a run was quiet: `ping_ms` is what this load itself makes others wait.
"""

from __future__ import annotations

from redjob.bench.result import Row, spread, tail
from redjob.bench.stage import Options, staged
from redjob.bench.steady import SteadyLoad, lateness_ms
from redjob.clock import SystemClock

PER_S = 5_000
JOBS = PER_S * 30
AHEAD_MS = 2_000
_WARM = 64
_LATE_S = 10.0  # after the last due time: what has not started by then is lost


def run(options: Options) -> Row:
    """Measure once."""
    jobs = options.jobs_or(JOBS)
    with staged(options, jobs + _WARM) as stage, stage.scheduler() as scheduler:
        spare = range(jobs, jobs + _WARM)
        with stage.warm_workers(options.workers, options.concurrency, spare) as workers:
            row = Row(
                bench="sustained",
                server=stage.server.label,
                jobs=jobs,
                per_s=PER_S,
                workers=options.workers,
                concurrency=options.concurrency,
            )
            load = SteadyLoad(stage, per_s=PER_S, ahead_ms=AHEAD_MS, most=jobs)
            with stage.ping(), load:
                load.join()
                stage.wait(
                    lambda: stage.tally.totals(range(jobs)).done,
                    jobs,
                    "sustained",
                    limit_s=AHEAD_MS / 1000 + _LATE_S,
                    services=[*workers, scheduler],
                )
            SystemClock().sleep(0.5)  # a second start of a job would come late
        late_ms = list(lateness_ms(stage, load.asked))
        totals = stage.tally.totals(range(jobs))
        row.lateness_ms, row.early = spread(late_ms), sum(late < 0 for late in late_ms)
        row.lost, row.duplicated = totals.lost, totals.duplicated
        row.ping_ms = tail(stage.ping_ms)
    return row
