"""A whole chaos run: processes, load, nemesis, healing, drain, and the history of all that."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from redjob.errors import NotReady
from tests.support import nemesis
from tests.support.connect import connect
from tests.support.history import History, Violation, check
from tests.support.history_dump import dump_all
from tests.support.history_files import read_effects
from tests.support.history_rules import RULES
from tests.support.load import Load, LoadThread, PlantedClient
from tests.support.plants import plant
from tests.support.processes import Stack, wait_until
from tests.support.settings import RunSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redjob.keys import Keyspace

_OPEN_WITHIN_S = 30.0
_KEEPS_JOURNAL_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a run is to be: `seed` decides what is asked, and who is killed unless `events` say so.

    A `plant` is given to the client as to all processes. With `whole_journal` nothing is trimmed, so
    that the checker can read every change of every job.
    """

    seed: int
    seconds: float
    per_s: float = 250.0
    burst_every_s: float = 3.0
    workers: int = 2
    schedulers: int = 1
    depth_limit: str = "10000"
    plant: str = ""
    events: Sequence[nemesis.Event] = ()
    whole_journal: bool = True
    drain_within_s: float = 60.0


class Run:
    """One run against a server of its own."""

    def __init__(self, plan: Plan, url: str, directory: Path) -> None:
        self.plan = plan
        self.events = plan.events
        self._effects = directory / "effects"
        self.settings = RunSettings(
            url=url,
            namespace="chaos",
            effects=str(self._effects),
            plant=plan.plant,
            depth_limit=plan.depth_limit,
            trim_every_s=_KEEPS_JOURNAL_S if plan.whole_journal else 1.0,
        )
        self._directory = directory
        self._redis: Any = connect(url)
        self._client = PlantedClient(url, "chaos", plant(plan.plant))
        self._load = Load(self._client, Random(plan.seed))

    def go(self) -> History:
        """Let it run, heal and drain; return what happened."""
        plan = self.plan
        with Stack(self.settings, self._directory) as stack:
            schedulers = [stack.start("scheduler").name for _ in range(plan.schedulers)]
            stack.start("sweeper")
            workers = [stack.start("worker").name for _ in range(plan.workers)]
            self.events = plan.events or nemesis.schedule(
                plan.seed,
                plan.seconds,
                workers=workers,
                schedulers=schedulers,
                pause_s=self.settings.lease_s + 1.5,
            )
            print(self.story())
            keys = self._wait_open()
            load = LoadThread(self._load, per_s=plan.per_s, burst_every_s=plan.burst_every_s)
            load.start()
            try:
                paused = nemesis.carry_out(self.events, stack.services, plan.seconds)
            finally:
                load.stop()
            stack.check_alive()
            self._drain(keys)
            for service in stack.services:
                service.wait_for("event=serving")
            codes = {service.name: service.stop() for service in stack.services}
            assert set(codes.values()) == {0}, codes
            return self._history(stack, keys, paused)

    def story(self) -> str:
        """What decides the run, for people who want it again."""
        plan = self.plan
        about = (
            f"seed {plan.seed} seconds {plan.seconds:g} per_s {plan.per_s:g} plant {plan.plant!r}"
        )
        return f"{about}: " + "; ".join(map(str, self.events))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
        self._redis.close()

    def _wait_open(self) -> Keyspace:
        def opened() -> bool:
            try:
                parts = self._client.keys.parts
            except NotReady:
                return False
            return bool(self._redis.exists(*(part.meta for part in parts)) == len(parts))

        wait_until(opened, within_s=_OPEN_WITHIN_S, what="all partitions are open")
        return self._client.keys

    def _drain(self, keys: Keyspace) -> None:
        """Wait until nothing is left to do, or for as long as it may take: the checker tells the rest."""
        deadline = time.monotonic() + self.plan.drain_within_s
        while time.monotonic() < deadline and self._left(keys):
            time.sleep(0.2)

    def _left(self, keys: Keyspace) -> int:
        pipeline = self._redis.pipeline(transaction=False)
        for part in keys.parts:
            q = part.queue(self.settings.queues[0])
            for key in (q.due, q.ready, part.running):
                pipeline.zcard(key)
            pipeline.hlen(part.dispatched)
            pipeline.hlen(part.runs)
            pipeline.xlen(q.stream)
        counts: list[int] = pipeline.execute()
        return sum(counts)

    def _history(self, stack: Stack, keys: Keyspace, paused: set[int]) -> History:
        written = read_effects(self._effects)
        return History(
            lease_ms=round(self.settings.lease_s * 1000),
            asked=self._load.asked,
            cancels=self._load.cancels,
            began=written.began,
            ended=written.ended,
            told=stack.told(),
            replaced=stack.replaced(),
            dumps=dump_all(self._redis, keys, whole_journal=self.plan.whole_journal),
            stalled=frozenset(paused),
        )


def account(history: History) -> str:
    """The figures of a run, for people."""
    extra = sum(len(starts) - 1 for starts in history.begun_of.values())
    causes: dict[str, int] = {}
    for line in history.extra_starts.values():
        causes[line.cause] = causes.get(line.cause, 0) + 1
    ends: dict[str, int] = {}
    for states in history.ends.values():
        for state in states:
            ends[state] = ends.get(state, 0) + 1
    asked = len({asked.id for asked in history.asked})
    replies: dict[str, int] = {}
    for cancel in history.cancels:
        replies[cancel.reply] = replies.get(cancel.reply, 0) + 1
    late = sorted(
        starts[0].at_ms - asked.run_at_ms
        for asked in history.asked
        if asked.run_at_ms and (starts := history.begun_of.get(asked.id or ""))
    )
    middle = f"p50 {late[len(late) // 2]} max {late[-1]} ms" if late else "none"
    return (
        f"jobs {asked}, starts {len(history.began)}, extra {extra} by {causes}, ends {ends}, "
        f"cancels {replies}, lateness of delayed jobs {middle}"
    )


def run(plan: Plan, url: str, directory: Path) -> tuple[History, list[Violation]]:
    """Carry a plan out and judge it. The directory is kept by pytest when the test fails."""
    started = Run(plan, url, directory)
    try:
        history = started.go()
    finally:
        started.close()
    print(account(history))
    if not history.began:
        pytest.fail("no task ever began: the run shows nothing")
    return history, check(history, RULES)
