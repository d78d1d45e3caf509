"""What a row of the table of states is driven by: a call, and everything that it must change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.support.dump import GONE, Entry, State
from tests.support.seed import Job
from tests.support.world import World

if TYPE_CHECKING:
    from redjob.calls.call import Call

TTL_MS = 5000
INF = float("inf")


@dataclass(slots=True)
class Step:
    """A call on a job and what must come of it; `line` is the journal line after id and home."""

    job: Job
    call: Call[Any]
    code: str
    changed: State
    again: str
    op: str = ""
    line: str = ""
    worker: str = ""
    journal_again: bool = field(default=False)


Driver = Callable[[World], Step]
DRIVERS: dict[str, Driver] = {}


def drives(row: str) -> Callable[[Driver], Driver]:
    """Register the driver of a row, named by its state before and its outcome."""

    def register(driver: Driver) -> Driver:
        DRIVERS[row] = driver
        return driver

    return register


def in_stream(job: Job, entry: str = "e1", *, bell: int = 1, first: bool = False) -> State:
    """What one more entry in an empty stream changes."""
    found: State = {
        f"dispatched/{job.id}": entry,
        f"stream:q/{entry}": Entry(job.id, job.text),
        "flow:q/depth": "1",
        "bell:q": bell,
    }
    return found | {"flow:q/group": "1"} if first else found


def not_running(job: Job) -> State:
    return {f"running/{job.id}": GONE, f"runs/{job.id}": GONE}


def buried(world: World, job: Job, state: str, attempt: int, tag: str) -> State:
    """A tombstone in place of the record; its seq is that of the next journal entry."""
    grave = f"{state} {world.seq + 1} {world.now_ms} {attempt} {tag}"
    return {f"job:{job.id}": GONE, f"finished/{job.id}": grave}
