"""A steady stream of delayed jobs, enqueued by a thread while a benchmark does something else."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from itertools import count
from types import TracebackType
from typing import NamedTuple, Self

from redjob.bench.app import QUEUE
from redjob.bench.jobs import TASK, accepted, arguments, at
from redjob.bench.stage import Stage
from redjob.client import Client
from redjob.clock import SystemClock
from redjob.submit import JobSpec

_TICK_S = 0.02


class Asked(NamedTuple):
    """A job that was accepted: its number, when it is due (wall ms) and in which partition it is."""

    number: int
    due_ms: int
    partition: int


class SteadyLoad:
    """Enqueues `per_s` jobs a second, each due `ahead_ms` later, until `most` are in or it is stopped.

    A context manager; what it has asked for is in `asked`, in the order of the due times.
    """

    def __init__(self, stage: Stage, *, per_s: int, ahead_ms: int, most: int) -> None:
        self.asked: list[Asked] = []
        self.error: BaseException | None = None
        self._stage = stage
        self._per_tick = max(1, round(per_s * _TICK_S))
        self._tick_s = self._per_tick / per_s
        self._ahead_ms = ahead_ms
        self._most = most
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def join(self) -> None:
        """Wait until all are in. Raises what kept one out."""
        self._thread.join()
        self.check()

    def stop(self) -> None:
        """Enqueue no more. Raises what kept one out."""
        self._stopped.set()
        self.join()

    def check(self) -> None:
        """Raise what ended it, if something did."""
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            with Client(self._stage.server.url, namespace=self._stage.namespace) as client:
                self._keep_up(client)
        except BaseException as exc:  # noqa: BLE001 - told to whoever waits for this thread
            self.error = exc

    def _keep_up(self, client: Client) -> None:
        clock = SystemClock()
        began, began_ms = time.monotonic(), clock.wall_ms()
        for tick in count():
            at_s = tick * self._tick_s
            if self._stopped.wait(max(0.0, began + at_s - time.monotonic())):
                return
            first = len(self.asked)
            size = min(self._per_tick, self._most - first)
            if not size:
                return
            due_ms = [
                began_ms + self._ahead_ms + round((at_s + place * self._tick_s / size) * 1000)
                for place in range(size)
            ]
            self._enqueue(client, first, due_ms)
            if clock.wall_ms() >= due_ms[0]:
                raise RuntimeError("enqueueing fell behind the due times: the machine is too busy")

    def _enqueue(self, client: Client, first: int, due_ms: list[int]) -> None:
        specs: list[JobSpec] = []
        for place, due in enumerate(due_ms):
            index, pad = arguments(first + place)
            specs.append(JobSpec(TASK, {"index": index, "pad": pad}, run_at=at(due), queue=QUEUE))
        jobs = accepted(client.enqueue_many(specs))
        of_job = self._stage.keys.of_job
        self.asked += [
            Asked(first + place, due, of_job(job.id).index)
            for place, (due, job) in enumerate(zip(due_ms, jobs, strict=True))
        ]


def starts_ns(stage: Stage, jobs: Sequence[Asked]) -> list[int | None]:
    """The first start of each of these jobs, wall ns; None for those that have not started."""
    if not jobs:
        return []
    first = min(asked.number for asked in jobs)
    last = max(asked.number for asked in jobs)
    starts = stage.tally.starts_ns(range(first, last + 1))
    return [starts[asked.number - first] for asked in jobs]


def lateness_ms(stage: Stage, jobs: Sequence[Asked]) -> Iterator[float]:
    """How late each of these jobs started that has started."""
    for asked, start in zip(jobs, starts_ns(stage, jobs), strict=True):
        if start is not None:
            yield start / 1e6 - asked.due_ms
