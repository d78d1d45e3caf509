"""enqueue: how fast one process hands jobs over, one by one and many at once.

One by one takes turns with a loop that sends the same script with KEYS and ARGV made beforehand, so
that what disturbs the machine disturbs both. A worker then runs all jobs, so that they are counted.
"""

from __future__ import annotations

import time
from typing import Any

from redjob.bench.app import QUEUE
from redjob.bench.cost import CostMeter
from redjob.bench.floors import Floor
from redjob.bench.jobs import accepted, arguments, doc_of
from redjob.bench.result import Row, tail
from redjob.bench.stage import Options, Stage, staged
from redjob.calls.jobs import NewJob, enqueue
from redjob.calls.scripts import ScriptSet
from redjob.clock import SystemClock
from redjob.ids import JobIds, new_token

JOBS = 20_000
_TURN = 100
_DRAIN_LIMIT_S = 120.0

Command = tuple[Any, ...]


def run(options: Options) -> Row:
    """Measure once: enqueue_many, then one by one beside the bare loop."""
    jobs = options.jobs_or(JOBS)
    with staged(options, 3 * jobs + 1) as stage, stage.scheduler():
        row = Row(bench="enqueue", server=stage.server.label, jobs=jobs)
        with stage.probe():
            _many(stage, row, jobs)
            _one_by_one(stage, row, jobs)
        row.probe_ms = tail(stage.probe_ms)
        floor = Floor(stage.client, stage.namespace, doc_of(0))
        row.floor_per_s = round(floor.enqueue(jobs))
        floor.remove()
        row.floor_ratio = round((row.jobs_per_s or 0) / row.floor_per_s, 3)
        with stage.worker(options.concurrency) as worker:
            tally = stage.tally
            stage.wait(
                lambda: tally.done,
                3 * jobs + 1,
                "counting",
                limit_s=_DRAIN_LIMIT_S,
                services=[worker],
            )
        totals = stage.tally.totals()
        row.lost, row.duplicated = totals.lost, totals.duplicated
    return row


def _many(stage: Stage, row: Row, jobs: int) -> None:
    items = [arguments(index) for index in range(jobs)]
    stage.noop.enqueue(3 * jobs, "")  # connects
    meter = CostMeter(stage.client)
    began = time.perf_counter()
    results = stage.noop.enqueue_many(items)
    seconds = time.perf_counter() - began
    meter.into(row, jobs)
    row.seconds, row.jobs_per_s = round(seconds, 3), round(jobs / seconds)
    accepted(results)


def _one_by_one(stage: Stage, row: Row, jobs: int) -> None:
    """The first `jobs` numbers are used up: these go on where they end."""
    commands = _prebuilt(stage, range(2 * jobs, 3 * jobs))
    send = stage.client.execute_command
    mine_s = bare_s = 0.0
    for first in range(0, jobs, _TURN):
        turn = range(jobs + first, jobs + min(jobs, first + _TURN))
        began = time.perf_counter()
        for index in turn:
            stage.noop.enqueue(*arguments(index))
        between = time.perf_counter()
        for command in commands[first : first + _TURN]:
            send(*command)
        bare_s += time.perf_counter() - between
        mine_s += between - began
    row.one_by_one_jobs_per_s = round(jobs / mine_s)
    row.one_by_one_bare_per_s = round(jobs / bare_s)
    row.one_by_one_ratio = round(bare_s / mine_s, 3)


def _prebuilt(stage: Stage, indices: range) -> list[Command]:
    sha = ScriptSet()["enqueue"].sha
    ids = JobIds(SystemClock())
    commands: list[Command] = []
    for index in indices:
        job_id = ids.new_job_id()
        part = stage.keys.of_job(job_id)
        call = enqueue(part, QUEUE, "default", 5, [NewJob(job_id, 0, doc_of(index))], new_token())
        commands.append(("EVALSHA", sha, len(call.keys), *call.keys, *call.args))
    return commands
