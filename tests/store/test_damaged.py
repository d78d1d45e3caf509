"""A key of the wrong type at each place that a script touches: no job is lost.

The script refuses before it has changed anything, or it goes round the damaged key and does the rest:
then the job is in a place or has ended, and the journal says what has become of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from redjob.errors import ScriptFailed
from redjob.model import TRANSITIONS
from tests.store import rows_running, rows_waiting
from tests.store.batches import BATCHES, Batch
from tests.store.rows import DRIVERS
from tests.store.test_transitions import name_of
from tests.support.dump import Journaled, changes
from tests.support.invariants import View
from tests.support.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.store.batches import Maker
    from tests.support.dump import State
    from tests.support.seed import Job
    from tests.support.servers import TestServer

REGISTERED = (rows_running, rows_waiting)  # by being imported
DAMAGE = "damage"
_PLACES = {"due": "S", "stream": "D", "ready": "R", "running": "T", "dead": "F"}
_ENDS = "CKXL"  # L: lost


def damage(world: World, key: str) -> None:
    """A set: no script expects one anywhere."""
    world.redis.delete(key)
    world.redis.sadd(key, DAMAGE)


def places_of(state: State, job: Job) -> set[str]:
    """Letters of the places, and of the end, that a state shows for a job."""
    found = {_PLACES[place.partition(":")[0]] for place in View(state).places().get(job.id, [])}
    grave = state.get(f"finished/{job.id}")
    lost = {"L"} if f"lost/{job.id}" in state else set[str]()
    return found | lost | ({str(grave)[0]} if grave is not None else set())


def last_word(state: State, seq_before: int, job: Job) -> str:
    """The letter that the journal's new entries say of a job, "" when they say nothing."""
    word = ""
    for name, entry in state.items():
        if name.startswith("journal/") and int(name[8:]) > seq_before:
            assert isinstance(entry, Journaled)
            for line in entry.lines:
                if line.startswith(job.id):
                    word = line.split(" ")[2]
    return word


@dataclass(slots=True)
class Case:
    """One call with one damaged key, and the states around it."""

    name: str
    whole: State
    before: State
    after: State
    seq: int

    def faults(self, job: Job) -> Iterator[str]:
        """What went wrong with a job although the script answered, in words."""
        was, shown = places_of(self.before, job), places_of(self.after, job)
        hidden = places_of(self.whole, job) - was
        word = last_word(self.after, self.seq, job)
        ended = bool(shown & set(_ENDS))
        if (was or hidden or word) and not shown | hidden:
            yield "lost: it is nowhere"
        if len(shown) > 1:
            yield f"it is in {sorted(shown)}"
        record = f"job:{job.id}"
        if not ended and record in self.before and record not in self.after and "F" not in shown:
            yield "its record is gone"
        if shown != was and word not in shown:
            yield f"it went to {sorted(shown)}, the journal says {word!r}"
        if word and word not in shown:
            yield f"the journal says {word!r}, it is in {sorted(shown)}"


def faults_of(world: World, found: Batch, n: int) -> list[str]:
    """What the call does with its n-th key damaged, as far as it must not."""
    whole, key = world.dump(), found.call.keys[n]
    seq = world.seq
    name = f"KEYS[{n + 1}] {key.removeprefix(world.part.base)}"
    damage(world, key)
    before = world.dump()
    try:
        world.run(found.call)
    except ScriptFailed as exc:
        changed = sorted(changes(before, world.dump()))
        return [f"{name}: {exc.reason}, but changed {changed}"] if changed else []
    case = Case(name, whole, before, world.dump(), seq)
    return [f"{name}: {job.id} {fault}" for job in found.jobs for fault in case.faults(job)]


def single(row: str) -> Maker:
    """A row of the table of states as a call on one job."""

    def make(world: World) -> Batch:
        step = DRIVERS[row](world)
        return Batch([step.job], step.call)

    return make


CALLS = {name_of(row): single(name_of(row)) for row in TRANSITIONS} | BATCHES


@pytest.mark.parametrize("name", CALLS)
def test_no_damaged_key_loses_a_job(server: TestServer, ns: str, name: str) -> None:
    faults: list[str] = []
    n, keys = 0, 1
    while n < keys:
        with World(server.url, f"{ns}k{n}") as world:
            found = CALLS[name](world)
            keys = len(found.call.keys)
            faults += faults_of(world, found, n)
        n += 1
    assert not faults, "\n".join(faults)
