"""takeover: from kill -9 of a scheduler under a steady load until others fire what it had to.

The figure ends with the start of a job that is due after the kill, in a partition that the killed
one owned: nobody but a successor can have fired that. So it has the worker's part in it, a few ms.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from redjob.bench.best import VOID_MS
from redjob.bench.processes import Service
from redjob.bench.result import Row, middle, spread, tail
from redjob.bench.stage import START_S, Options, Stage, staged
from redjob.bench.steady import Asked, SteadyLoad, lateness_ms, starts_ns
from redjob.calls.overview import present
from redjob.config import SchedulerConfig
from redjob.keys import PartitionKeys
from redjob.partitions import rendezvous

KILLS = 20
_QUICK_KILLS = 2
_VOID_FACTOR = 2
PER_S = 500
AHEAD_MS = 1_000
_WARM = 64
_A_KILL_S = 20  # at most, with the start of another scheduler and its wait to join
_SETTLED_S = 1.0  # nothing moves any more when it has not for so long
_WATCH_MS = 3_000  # after the kill: others' lateness is looked at
_LIMIT_S = 10.0
_STARTED = "event=scheduler_started node="


class _Kill(NamedTuple):
    """What one kill showed, in ms."""

    takeover_ms: float
    others_late_ms: list[float]
    probe_ms: list[float]

    @property
    def is_valid(self) -> bool:
        """Whether the machine had nothing else to do."""
        return max(self.probe_ms, default=0.0) <= VOID_MS


def run(options: Options) -> Row:
    """Kill until enough kills were undisturbed."""
    wanted = options.kills or (_QUICK_KILLS if options.quick else KILLS)
    most = (wanted * (1 + _VOID_FACTOR) + 1) * _A_KILL_S * PER_S
    with staged(options, most + _WARM) as stage, contextlib.ExitStack() as stack:
        spare = range(most, most + _WARM)
        with stage.scheduler():
            workers = stage.warm_workers(options.workers, options.concurrency, spare)
            stack.enter_context(workers)
        scene = _Scene(stage, stack, options.schedulers, most)
        kills = scene.kill_until(wanted)
        return _row(stage, scene, kills)


class _Scene:
    """Schedulers under a steady load, of which one after another is killed and replaced."""

    def __init__(
        self, stage: Stage, stack: contextlib.ExitStack, schedulers: int, most: int
    ) -> None:
        self._stage = stage
        self._stack = stack
        self._rng = random.Random()
        self._nodes: dict[str, Service] = {}
        for _ in range(schedulers):
            self._start()
        self.load = SteadyLoad(stage, per_s=PER_S, ahead_ms=AHEAD_MS, most=most)

    def kill_until(self, wanted: int) -> list[_Kill]:
        """Kill until `wanted` kills are valid, or there were too many void ones."""
        kills: list[_Kill] = []
        with self.load:
            while True:
                kills.append(self._kill())
                valid = sum(kill.is_valid for kill in kills)
                if valid >= wanted or len(kills) - valid >= wanted * _VOID_FACTOR:
                    break
                self._start()
        self._stage.wait(
            lambda: self._stage.tally.totals(range(len(self.load.asked))).done,
            len(self.load.asked),
            "rest",
            limit_s=_LIMIT_S,
        )
        time.sleep(0.5)  # a second start of a job would come late
        return kills

    def _start(self) -> None:
        service = self._stack.enter_context(self._stage.scheduler())
        self._stage.until(service, lambda: _STARTED in self._stage.said(service))
        name = self._stage.said(service).partition(_STARTED)[2].split()[0]
        self._nodes[name] = service

    def _kill(self) -> _Kill:
        """Kill the node with the most partitions, which has a third of them at least."""
        self._wait_settled()
        with self._stage.probe():
            owners = self._owners()
            counts = {name: list(owners.values()).count(name) for name in self._nodes}
            victim = max(counts, key=counts.__getitem__)
            orphans = {index for index, name in owners.items() if name == victim}
            time.sleep(self._rng.uniform(0.0, SchedulerConfig().renew_every_s))
            killed_ns = time.time_ns()
            self._nodes.pop(victim).kill()
            first_ns = self._first_start(killed_ns, orphans)
            left_s = killed_ns / 1e9 + _WATCH_MS / 1000 - time.time()
            time.sleep(max(0.0, left_s))
        end_ms = killed_ns // 1_000_000 + _WATCH_MS - 500
        others = [
            asked
            for asked in self._recent(killed_ns)
            if asked.partition not in orphans and asked.due_ms < end_ms
        ]
        late_ms = list(lateness_ms(self._stage, others))
        return _Kill((first_ns - killed_ns) / 1e6, late_ms, [*self._stage.probe_ms])

    def _first_start(self, killed_ns: int, orphans: set[int]) -> int:
        """Wait for the first start of a job of these partitions that is due after the kill; wall ns."""
        found: list[int] = []

        def look() -> bool:
            self._check()
            mine = [asked for asked in self._recent(killed_ns) if asked.partition in orphans]
            found[:] = [start for start in starts_ns(self._stage, mine) if start is not None]
            return bool(found)

        _until(look, _LIMIT_S, "another node fires")
        return min(found)

    def _recent(self, killed_ns: int) -> list[Asked]:
        """The jobs that are due after the kill."""
        found: list[Asked] = []
        for asked in reversed(self.load.asked):
            if asked.due_ms * 1_000_000 <= killed_ns:
                break
            found.append(asked)
        return found

    def _wait_settled(self) -> None:
        """Wait until each partition has been with the node that should have it for a while."""
        since = time.monotonic()

        def settled() -> bool:
            nonlocal since
            self._check()
            owners, nodes = self._owners(), sorted(self._nodes)
            wanted = {part.index: rendezvous(f"p{part.index}", nodes) for part in self._parts}
            if owners != wanted:
                since = time.monotonic()
            return time.monotonic() - since >= _SETTLED_S

        _until(settled, START_S, "the partitions are spread over all schedulers")

    def _owners(self) -> dict[int, str]:
        return self._stage.store.query(present(self._stage.namespace)).owners

    @property
    def _parts(self) -> list[PartitionKeys]:
        return self._stage.keys.parts

    def _check(self) -> None:
        self.load.check()
        for service in self._nodes.values():
            service.check()


def _row(stage: Stage, scene: _Scene, kills: Sequence[_Kill]) -> Row:
    valid = [kill for kill in kills if kill.is_valid]
    counted = valid or kills
    jobs = range(len(scene.load.asked))
    totals = stage.tally.totals(jobs)
    return Row(
        bench="takeover",
        server=stage.server.label,
        jobs=len(jobs),
        per_s=PER_S,
        takeover_ms=middle([kill.takeover_ms for kill in counted]),
        kills=len(valid),
        void_kills=len(kills) - len(valid),
        lateness_ms=spread([late for kill in counted for late in kill.others_late_ms]),
        probe_ms=tail([value for kill in counted for value in kill.probe_ms]),
        early=sum(late < 0 for late in lateness_ms(stage, scene.load.asked)),
        lost=totals.lost,
        duplicated=totals.duplicated,
    )


def _until(condition: Callable[[], bool], within_s: float, what: str) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within_s:g} s: {what}")
        time.sleep(0.02)
