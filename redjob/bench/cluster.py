"""cluster: what a job costs the primaries of a cluster and its client, against a single server.

The same jobs on a server alone, on a cluster of one primary and on one of three: enqueued in batches
of 100, drained by one worker; then as many fired by one scheduler. All primaries share the machine:
rates say nothing, and time in scripts has in it how long the others had the processor.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from redjob.bench.drain import wait_reported
from redjob.bench.fire import enqueue_due
from redjob.bench.jobs import accepted, arguments
from redjob.bench.meter import ServerMeter
from redjob.bench.processes import Service
from redjob.bench.result import Row, tail
from redjob.bench.stage import Options, Stage, staged
from redjob.clock import SystemClock
from redjob.partitions import SLOTS

JOBS = 60_000  # for each of three primaries as many as other benchmarks have
BATCH = 100
_TURN = 10 * BATCH
_WARM_BATCHES = 30  # so that each primary has been met
_LIMIT_S = 120.0
_LAYOUTS: dict[str, int | None] = {"alone": None, "of 1": 1, "of 3": 3}


class _Shares(NamedTuple):
    """Processor and script time of each primary, µs, its script calls, and the jobs that it had."""

    cpu_us: list[float]
    script_us: list[float]
    calls: list[int]
    jobs: list[int]

    def a_job(self, spent_us: Sequence[float]) -> list[float]:
        """What each primary spent on a job, µs."""
        return [us / max(1, jobs) for us, jobs in zip(spent_us, self.jobs, strict=True)]

    def jobs_per_call(self) -> float:
        """How many jobs a script call moved on, whatever the machine was busy with."""
        return sum(self.jobs) / max(1, sum(self.calls))


def deviation(shares: Sequence[float]) -> float:
    """How far a share is off an even one, at most, in %."""
    even = sum(shares) / len(shares)
    return max(abs(share / even - 1) for share in shares) * 100


class _Figures(NamedTuple):
    """What one layout cost."""

    server: str
    client_us: float
    phases: dict[str, _Shares]
    lost: int
    duplicated: int
    probe_ms: list[float]


def run(options: Options) -> Row:
    """Measure the three layouts once, each on servers of its own."""
    jobs = options.jobs_or(JOBS)
    own = replace(options, url=None)
    found = {name: _measure(own, jobs, primaries) for name, primaries in _LAYOUTS.items()}
    alone, three = found["alone"], found["of 3"]
    return Row(
        bench="cluster",
        server=alone.server,
        jobs=jobs,
        batch=BATCH,
        cpu_us={name: round(us, 2) for name, us in _costs(found, lambda shares: shares.cpu_us)},
        script_us={
            name: round(us, 2) for name, us in _costs(found, lambda shares: shares.script_us)
        },
        client_us={name: round(figures.client_us, 2) for name, figures in found.items()},
        jobs_per_call={
            f"{what} {name}": round(shares.jobs_per_call(), 1)
            for name, figures in found.items()
            for what, shares in figures.phases.items()
        },
        redis_ratio=round(max(_ratios(alone, three)), 3),
        client_ratio=round(three.client_us / alone.client_us, 3),
        split_percent=round(max(deviation(part.cpu_us) for part in three.phases.values()), 1),
        jobs_split_percent=round(max(deviation(part.jobs) for part in three.phases.values()), 1),
        probe_ms=tail([value for figures in found.values() for value in figures.probe_ms]),
        lost=sum(figures.lost for figures in found.values()),
        duplicated=sum(figures.duplicated for figures in found.values()),
    )


def _costs(
    found: Mapping[str, _Figures], spent: Callable[[_Shares], list[float]]
) -> Iterator[tuple[str, float]]:
    """What a job cost each primary of each layout in each phase, µs."""
    for name, figures in found.items():
        for what, shares in figures.phases.items():
            costs = shares.a_job(spent(shares))
            for number, us in enumerate(costs, 1):
                yield f"{what} {name}" + (f" #{number}" if len(costs) > 1 else ""), us


def _ratios(alone: _Figures, three: _Figures) -> Iterator[float]:
    """Processor time of a job on each primary of three, against that on a server alone."""
    for what, shares in three.phases.items():
        single = alone.phases[what]
        (base_us,) = single.a_job(single.cpu_us)
        yield from (us / base_us for us in shares.a_job(shares.cpu_us))


def _measure(options: Options, jobs: int, primaries: int | None) -> _Figures:
    warm = _WARM_BATCHES * BATCH
    with staged(options, 2 * jobs + warm, primaries=primaries) as stage, stage.probe():
        with stage.scheduler() as scheduler:
            _enqueue(stage, range(2 * jobs, 2 * jobs + warm))
            with stage.worker(options.concurrency) as worker:
                _wait(stage, range(2 * jobs, 2 * jobs + warm), [worker, scheduler])
            ids, client_us = _enqueue_timed(stage, jobs)
            meters = _meters(stage)
            with stage.worker(options.concurrency) as worker:
                _wait(stage, range(jobs), [worker, scheduler])
                wait_reported(stage)
                drain = _shares(stage, meters, ids)
        fire = _fire(stage, range(jobs, 2 * jobs), options)
        totals = stage.tally.totals()
        label = stage.server.label
    return _Figures(
        label,
        client_us,
        {"drain": drain, "fire": fire},
        totals.lost,
        totals.duplicated,
        stage.probe_ms,
    )


def _fire(stage: Stage, numbers: range, options: Options) -> _Shares:
    """Let jobs become due while no scheduler runs, and start one; then run them, to count them."""
    clock = SystemClock()
    due_ms, ids = enqueue_due(stage, len(numbers), clock, first=numbers.start)
    clock.sleep(max(0, due_ms + 50 - clock.wall_ms()) / 1000)
    meters = _meters(stage)
    with stage.scheduler() as scheduler:
        stage.wait(stage.streamed, len(numbers), "fire", limit_s=_LIMIT_S, services=[scheduler])
        fired = _shares(stage, meters, ids)
        with stage.worker(options.concurrency) as worker:
            _wait(stage, numbers, [worker, scheduler])
    return fired


def _enqueue_timed(stage: Stage, jobs: int) -> tuple[list[str], float]:
    """Enqueue; return the ids and the processor time of a job, µs.

    The median of many turns: the scheduler reads along, and for a while it gets in the way.
    """
    ids: list[str] = []
    costs_us: list[float] = []
    for first in range(0, jobs, _TURN):
        numbers = range(first, min(first + _TURN, jobs))
        began = time.process_time()
        ids += _enqueue(stage, numbers)
        costs_us.append((time.process_time() - began) / len(numbers) * 1e6)
    return ids, median(costs_us)


def _enqueue(stage: Stage, numbers: range) -> list[str]:
    ids: list[str] = []
    for first in range(numbers.start, numbers.stop, BATCH):
        batch = range(first, min(first + BATCH, numbers.stop))
        results = stage.noop.enqueue_many([arguments(number) for number in batch])
        ids += [job.id for job in accepted(results)]
    return ids


def _wait(stage: Stage, numbers: range, services: Sequence[Service]) -> None:
    stage.wait(
        lambda: stage.tally.totals(numbers).done,
        len(numbers),
        "cluster",
        limit_s=_LIMIT_S,
        services=services,
    )


def _meters(stage: Stage) -> list[ServerMeter]:
    return [ServerMeter(node) for node in stage.server.nodes]


def _shares(stage: Stage, meters: Sequence[ServerMeter], ids: Sequence[str]) -> _Shares:
    count = len(meters)
    jobs = Counter(stage.keys.of_job(job_id).slot * count // SLOTS for job_id in ids)
    spent = [meter.take() for meter in meters]
    return _Shares(
        [cost.cpu_us for cost in spent],
        [float(cost.script_us) for cost in spent],
        [cost.script_calls for cost in spent],
        [jobs[number] for number in range(count)],
    )
