"""A small world for one scenario: a namespace, its processes, a client, and what tasks wrote down."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Self

import msgspec

from redjob.calls.scripts import ScriptSet
from redjob.errors import NotReady
from tests.support.connect import connect
from tests.support.history import History, check, summary
from tests.support.history_dump import dump_all
from tests.support.history_files import read_effects
from tests.support.history_rules import RULES
from tests.support.load import Load, PlantedClient
from tests.support.processes import Stack, wait_until
from tests.support.settings import RunSettings
from tests.support.tasks import released

if TYPE_CHECKING:
    from collections.abc import Callable

    from redjob import Job
    from redjob.keys import Keyspace
    from tests.support.history import Began, Told
    from tests.support.processes import Service

NAMESPACE = "scene"
_OPEN_WITHIN_S = 30.0
_DRAIN_WITHIN_S = 40.0


class Scene(Stack):
    """Processes, and everything that a scenario asks of them. `client` is the public client."""

    def __init__(self, url: str, directory: Path, **changed: Any) -> None:
        effects = directory / "effects"
        settings = RunSettings(url=url, namespace=NAMESPACE, effects=str(effects))
        super().__init__(msgspec.structs.replace(settings, **changed), directory)
        self.redis: Any = connect(url)
        self.client = PlantedClient(
            url, self.settings.namespace, ScriptSet(), ack=self.settings.ack
        )
        self.load = Load(self.client, Random(1))
        self._effects = effects
        self._left.callback(self.redis.close)
        self._left.callback(self.client.close)

    def open(self, *, workers: int = 1) -> Self:
        """Start a scheduler, a sweeper and workers, and wait until jobs are accepted."""
        self.start_all(workers=workers)
        wait_until(self.is_open, within_s=_OPEN_WITHIN_S, what=f"open: {self.services[0].tail()}")
        return self

    @property
    def keys(self) -> Keyspace:
        """The keys of the namespace."""
        return self.client.keys

    @property
    def lease_ms(self) -> int:
        """The workers' lease."""
        return round(self.settings.lease_s * 1000)

    def job(self, task: str = "work", **asked: Any) -> Job:
        """Enqueue one job, which must be accepted; arguments as for `Load.enqueue`."""
        job = self.load.enqueue(task, **asked)
        assert job is not None
        return job

    def began(self, *jobs: Job) -> list[Began]:
        """The starts so far, of these jobs or of all, in the order of time."""
        ids = {job.id for job in jobs}
        starts = [
            start for start in read_effects(self._effects).began if not ids or start.job in ids
        ]
        return sorted(starts, key=lambda start: start.at_ms)

    def ended(self, *jobs: Job) -> list[str]:
        """How attempts have ended so far, of these jobs or of all."""
        ids = {job.id for job in jobs}
        ends = read_effects(self._effects).ended
        return [end.outcome for end in ends if not ids or end.job in ids]

    def extra_starts(self, *jobs: Job) -> list[Told]:
        """What the logs say of second starts, of these jobs or of all."""
        ids = {job.id for job in jobs}
        lines = [line for line in self.told() if line.event == "extra_start"]
        return [line for line in lines if not ids or line.job in ids]

    def wait(self, condition: Callable[[], object], *, within_s: float = 15.0, what: str) -> None:
        """Wait for a condition; the test fails with the logs when it does not come true."""
        try:
            wait_until(condition, within_s=within_s, what=what)
        except BaseException:
            for service in self.services:
                print(f"-- {service.name}\n{service.tail()}")
            raise

    def wait_running(self, *jobs: Job) -> None:
        """Wait until each of these jobs has begun."""
        self.wait(
            lambda: {start.job for start in self.began(*jobs)} == {job.id for job in jobs},
            what=f"{len(jobs)} jobs have begun",
        )

    def release(self) -> None:
        """Let the tasks named `hold` end."""
        released(self.settings).touch()

    def left(self) -> int:
        """How many unfinished jobs the places hold, and entries the streams."""
        pipeline = self.redis.pipeline(transaction=False)
        for part in self.keys.parts:
            for queue in self.settings.queues:
                q = part.queue(queue)
                for key in (q.due, q.ready):
                    pipeline.zcard(key)
                pipeline.xlen(q.stream)
            pipeline.zcard(part.running)
            pipeline.hlen(part.dispatched)
            pipeline.hlen(part.runs)
        counts: list[int] = pipeline.execute()
        return sum(counts)

    def drain(self, *, within_s: float = _DRAIN_WITHIN_S) -> None:
        """Wait until every job has ended."""
        self.wait(lambda: not self.left(), within_s=within_s, what="all jobs have ended")

    def check(self) -> History:
        """Assert that the history so far is as it must be, all jobs having ended; return it."""
        written = read_effects(self._effects)
        history = History(
            lease_ms=self.lease_ms,
            asked=self.load.asked,
            cancels=self.load.cancels,
            began=written.began,
            ended=written.ended,
            told=self.told(),
            replaced=self.replaced(),
            dumps=dump_all(self.redis, self.keys, whole_journal=False),
        )
        violations = check(history, RULES)
        assert not violations, summary(violations)
        return history

    def is_open(self) -> bool:
        """Whether all partitions accept jobs."""
        try:
            parts = self.keys.parts
        except NotReady:
            return False
        return bool(self.redis.exists(*(part.meta for part in parts)) == len(parts))


def revive(service: Service, *, until: Callable[[], object], within_s: float) -> None:
    """Start a service again each time it dies, as a supervisor does, until a condition holds."""
    deadline = time.monotonic() + within_s
    while not until():
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {service.tail()}"
        if not service.alive:
            service.start()
        time.sleep(0.02)
