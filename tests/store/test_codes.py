"""Every letter that a header declares is answered by its script, and no script answers another one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from redjob.calls import jobs, sweep, work
from redjob.calls.scripts import script_names
from tests.support.contract import declared_codes
from tests.support.ground import LEASE_MS
from tests.support.seed import QUEUE, Job
from tests.support.world import WORKER, World

if TYPE_CHECKING:
    from redjob.calls.call import Call

_LUA = Path(__file__).resolve().parents[2] / "lua"


def code(world: World, call: Call[Any]) -> str:
    reply = world.run(call)
    return str(reply.code if hasattr(reply, "code") else reply.codes)


def damaged(world: World, key: str) -> World:
    """The world with a set where no script expects one."""
    world.redis.delete(key)
    world.redis.sadd(key, "damage")
    return world


def without_record(world: World, job: Job) -> Job:
    world.redis.delete(world.part.job(job.id))
    return job


def limited(world: World, job: Job) -> Job:
    world.limit(QUEUE, 0)
    return job


def queue(world: World) -> Any:
    return world.part.queue(QUEUE)


def enqueue_again(world: World) -> str:
    job = world.ended()
    call = jobs.enqueue(world.part, QUEUE, "default", 5, [job.new], world.tag())
    call.args[call.again_at] = "1"
    return code(world, call)


def begin(world: World, job: Job, *, times: int = 1) -> str:
    entry = world.entry_of(job)
    call = work.begin(
        world.part, QUEUE, WORKER, [(entry, job.id)] * times, lease_ms=LEASE_MS, tag=world.tag()
    )
    return code(world, call)[-1]


def begin_cancelled(world: World) -> str:
    job = world.dispatched()
    entry = world.entry_of(job)
    world.cancel(job)
    call = work.begin(
        world.part, QUEUE, WORKER, [(entry, job.id)], lease_ms=LEASE_MS, tag=world.tag()
    )
    return code(world, call)


def adopt(world: World) -> str:
    job = world.dispatched()
    saved = world.save()
    world.take()
    world.restore(saved)
    return world.heartbeat(job)


def asked(world: World, **given: Any) -> Job:
    job = world.running(**given)
    world.cancel(job)
    return job


def again(world: World, outcome: str) -> str:
    call = work.finish(world.part, WORKER, [world.running().end(outcome)], tag=world.tag())
    world.run(call)
    return code(world, call)


def expired(world: World) -> Job:
    job = world.running(lease_ms=1)
    world.watch()
    return job


def asked_and_expired(world: World) -> Job:
    job = asked(world, lease_ms=1)
    world.watch()
    return job


def late(world: World) -> Job:
    job = expired(world)
    assert world.reclaim(job) == "M"
    return job


def changed_score(world: World) -> Job:
    job = world.overdue()
    world.redis.zadd(queue(world).due, {job.id: world.now_ms - 1})
    return limited(world, job)


def requeue(world: World, job: Job, entry: str = "") -> str:
    world.watch()
    return world.requeue((job, entry))


def requeue_damaged(world: World) -> str:
    job = world.dispatched()
    world.redis.delete(queue(world).stream)
    return requeue(damaged(world, queue(world).flow), job)


def reschedule(world: World, job: Job, *, seen_ms: int | None = None, by_ms: int = 1) -> str:
    at = job.run_at_ms
    call = jobs.reschedule(
        world.part, QUEUE, job.id, seen_ms=at if seen_ms is None else seen_ms, run_at_ms=at + by_ms,
        tag=world.tag(),
    )  # fmt: skip
    return code(world, call)


def replay(world: World, job: Job, *, seen_ms: int | None = None, times: int = 1) -> str:
    died_ms = world.now_ms if seen_ms is None else seen_ms
    call = jobs.replay(world.part, QUEUE, job.id, died_ms=died_ms, past=b"{}", tag=world.tag())
    return [code(world, call) for _ in range(times)][-1]


def purge(world: World, job: Job, *, keep_ms: int = 0, times: int = 1) -> str:
    call = sweep.purge(world.part, QUEUE, [(job.id, b"")], keep_ms=keep_ms, tag=world.tag())
    return [code(world, call) for _ in range(times)][-1]


def lose(world: World, job: Job) -> str:
    return code(world, sweep.lose(world.part, [QUEUE], [job.id], tag=world.tag()))


Driver = Callable[[World], str]
DRIVERS: dict[str, dict[str, Driver]] = {
    "enqueue": {
        "S": lambda w: w.enqueue(w.job(run_at_ms=w.now_ms + 1)),
        "D": lambda w: w.enqueue(w.job()),
        "R": lambda w: w.enqueue(limited(w, w.job())),
        "E": lambda w: w.enqueue(w.scheduled()),
        "T": enqueue_again,
        "B": lambda w: damaged(w, queue(w).stream).enqueue(w.job()),
    },
    "fire": {
        "D": lambda w: w.fire(w.overdue()).codes,
        "R": lambda w: w.park(limited(w, w.overdue())).codes,
        "F": lambda w: w.fire(limited(w, w.overdue())).codes,
        "E": lambda w: w.fire(w.scheduled()).codes,
        "A": lambda w: w.fire(w.dispatched()).codes,
        "C": lambda w: w.park(changed_score(w)).codes,
        "N": lambda w: w.fire(without_record(w, w.overdue())).codes,
        "B": lambda w: damaged(w, queue(w).flow).fire(w.overdue()).codes,
    },
    "release": {
        "D": lambda w: w.release(w.ready()),
        "F": lambda w: w.release(limited(w, w.ready())),
        "A": lambda w: w.release(w.scheduled()),
        "N": lambda w: w.release(without_record(w, w.ready())),
        "B": lambda w: damaged(w, queue(w).stream).release(w.ready()),
    },
    "begin": {
        "T": lambda w: begin(w, w.dispatched()),
        "=": lambda w: begin(w, w.dispatched(), times=2),
        "A": begin_cancelled,
    },
    "heartbeat": {
        "H": lambda w: w.heartbeat(w.running()),
        "Q": lambda w: w.heartbeat(asked(w)),
        "A": adopt,
        "L": lambda w: w.heartbeat(w.ended()),
    },
    "finish": {
        "M": lambda w: w.finish(w.running(), "C"),
        "=": lambda w: again(w, "R"),
        "V": lambda w: w.finish(late(w), "C"),
        "K": lambda w: w.finish(asked(w), "R"),
        "L": lambda w: w.finish(w.running(), "C", worker="another"),
        "N": lambda w: w.finish(w.job(), "C"),
        "B": lambda w: damaged(w, queue(w).dead).finish(w.running(), "F"),
    },
    "reclaim": {
        "M": lambda w: w.reclaim(expired(w)),
        "K": lambda w: w.reclaim(asked_and_expired(w)),
        "L": lambda w: w.reclaim(expired(w), run=b"2 another"),
        "N": lambda w: w.reclaim(without_record(w, expired(w))),
        "B": lambda w: damaged(w, queue(w).due).reclaim(expired(w)),
    },
    "requeue": {
        "D": lambda w: requeue(w, job := w.dispatched(), w.entry_of(job)),
        "A": lambda w: requeue(w, w.dispatched()),
        "N": lambda w: requeue(w, w.ended()),
        "B": requeue_damaged,
    },
    "cancel": {
        "K": lambda w: w.cancel(w.scheduled()).code,
        "Q": lambda w: w.cancel(w.running()).code,
        "F": lambda w: w.cancel(w.dead()).code,
        "E": lambda w: w.cancel(w.ended()).code,
        "A": lambda w: w.cancel(w.job()).code,
    },
    "reschedule": {
        "S": lambda w: reschedule(w, w.scheduled()),
        "=": lambda w: reschedule(w, w.scheduled(), by_ms=0),
        "C": lambda w: reschedule(w, w.scheduled(), seen_ms=1),
        "A": lambda w: reschedule(w, w.dispatched()),
        "N": lambda w: reschedule(w, without_record(w, w.scheduled())),
    },
    "replay": {
        "S": lambda w: replay(w, w.dead()),
        "=": lambda w: replay(w, w.dead(), times=2),
        "C": lambda w: replay(w, w.dead(), seen_ms=1),
        "A": lambda w: replay(w, w.scheduled()),
        "N": lambda w: replay(w, without_record(w, w.dead())),
    },
    "purge": {
        "M": lambda w: purge(w, w.dead()),
        "=": lambda w: purge(w, w.dead(), times=2),
        "Y": lambda w: purge(w, w.dead(), keep_ms=1),
        "A": lambda w: purge(w, w.scheduled()),
    },
    "lose": {
        "L": lambda w: lose(w, without_record(w, w.scheduled())),
        "D": lambda w: lose(w, without_record(w, w.dispatched())),
        "H": lambda w: lose(w, without_record(w, w.running())),
        "A": lambda w: lose(w, w.scheduled()),
    },
}


def test_each_declared_letter_has_a_driver_and_no_other() -> None:
    found = {name: declared_codes((_LUA / f"{name}.lua").read_text()) for name in script_names()}
    assert {name: codes for name, codes in found.items() if codes} == {
        name: set(drivers) for name, drivers in DRIVERS.items()
    }


@pytest.mark.parametrize(
    ("script", "letter"),
    [(script, letter) for script, drivers in DRIVERS.items() for letter in drivers],
)
def test_the_letter_is_answered(world: World, script: str, letter: str) -> None:
    assert DRIVERS[script][letter](world) == letter
