"""Rows of the table of states that end an attempt, in time or late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redjob.calls import jobs, owner, sweep, work
from tests.store.rows import TTL_MS, Step, buried, drives, in_stream, not_running
from tests.support.dump import GONE, Expiring
from tests.support.seed import QUEUE, RESULT, VERDICT, past_json
from tests.support.world import CRASHED, LEASE_MS, WORKER

if TYPE_CHECKING:
    from redjob.calls.call import Call
    from redjob.model import Past
    from tests.support.dump import State
    from tests.support.seed import Job
    from tests.support.world import World


def finish(world: World, job: Job, outcome: str, tag: str, **given: Any) -> Call[work.Codes]:
    return work.finish(world.part, WORKER, [job.end(outcome, **given)], tag=tag)


def reclaim(
    world: World, job: Job, outcome: str, tag: str, past: Past | None = None
) -> Call[work.Codes]:
    expired = sweep.Expired(b"1 worker1", job.end(outcome, past=past, result_ttl_ms=TTL_MS))
    return sweep.reclaim(world.part, [expired], grace_ms=LEASE_MS, tag=tag)


def expired_run(world: World, **given: Any) -> Job:
    """A running job whose lease is over, in front of a sweeper that may act."""
    job = world.running(lease_ms=1, **given)
    world.watch()
    return job


@drives("RUNNING heartbeat")
def heartbeat(world: World) -> Step:
    job = world.running()
    world.advance(1000)
    call = work.heartbeat(world.part, WORKER, [job.beat()], lease_ms=LEASE_MS, tag=world.tag())
    return Step(job, call, "H", {f"running/{job.id}": world.now_ms + LEASE_MS}, "H")


def finish_for_good(world: World, outcome: str) -> Step:
    job, tag = world.running(), world.tag()
    call = finish(world, job, outcome, tag, result_ttl_ms=TTL_MS)
    changed = not_running(job) | buried(world, job, outcome, 1, tag)
    changed[f"result:{job.id}"] = Expiring(RESULT.decode())
    return Step(job, call, "M", changed, "=", "finish", f"{outcome} 1", WORKER)


@drives("RUNNING finish complete")
def finish_complete(world: World) -> Step:
    return finish_for_good(world, "C")


@drives("RUNNING finish expire")
def finish_expire(world: World) -> Step:
    return finish_for_good(world, "X")


def finish_for_now(world: World, outcome: str) -> Step:
    job, tag, at = world.running(), world.tag(), world.now_ms + 1000
    past = past_json(outcome)
    changed = not_running(job) | {
        f"due:q/{job.id}": at,
        "queues/q": at,
        f"attempts/{job.id}": f"1 {tag} {past}",
    }
    call = finish(world, job, outcome, tag)
    return Step(job, call, "M", changed, "=", "finish", f"S 1 {at} q {past}", WORKER)


@drives("RUNNING finish retry")
def finish_retry(world: World) -> Step:
    return finish_for_now(world, "R")


@drives("RUNNING finish snooze")
def finish_snooze(world: World) -> Step:
    return finish_for_now(world, "Z")


@drives("RUNNING finish handback")
def finish_handback(world: World) -> Step:
    job, tag = world.running(), world.tag()
    changed = not_running(job) | in_stream(job, bell=2)
    changed[f"attempts/{job.id}"] = f"1 {tag} {past_json('B')}"
    rest = f"D 1 0 {job.queue} {past_json('B')}"
    return Step(job, finish(world, job, "B", tag), "M", changed, "=", "finish", rest, WORKER)


def dead(world: World, job: Job, tag: str, past: str) -> State:
    return not_running(job) | {
        f"dead:q/{job.id}": world.now_ms,
        f"attempts/{job.id}": f"1 {tag} {past}",
        f"result:{job.id}": Expiring(VERDICT.decode()),
    }


@drives("RUNNING finish dead")
def finish_dead(world: World) -> Step:
    job, tag, past = world.running(), world.tag(), past_json("F")
    call = finish(world, job, "F", tag, result_ttl_ms=TTL_MS)
    changed = dead(world, job, tag, past)
    return Step(job, call, "M", changed, "=", "finish", f"F 1 0 q {past}", WORKER)


@drives("RUNNING finish retry, cancel asked")
def finish_retry_cancelled(world: World) -> Step:
    job = world.running()
    assert world.run(jobs.cancel(world.part, QUEUE, job.id, b"", world.tag())).code == "Q"
    tag = world.tag()
    changed = not_running(job) | buried(world, job, "K", 1, tag) | {f"cancels/{job.id}": GONE}
    return Step(job, finish(world, job, "R", tag), "K", changed, "=", "finish", "K 1", WORKER)


@drives("RUNNING reclaim retry")
def reclaim_retry(world: World) -> Step:
    job, tag = expired_run(world), world.tag()
    at, past = world.now_ms + 1000, past_json("R")
    changed = not_running(job) | {
        f"due:q/{job.id}": at,
        "queues/q": at,
        f"attempts/{job.id}": f"1 {tag} {past}",
    }
    return Step(
        job, reclaim(world, job, "R", tag), "M", changed, "L", "reclaim", f"S 1 {at} q {past}"
    )


@drives("RUNNING reclaim dead")
def reclaim_dead(world: World) -> Step:
    job, tag, past = expired_run(world), world.tag(), past_json("F", CRASHED)
    changed = dead(world, job, tag, past)
    call = reclaim(world, job, "F", tag, CRASHED)
    return Step(job, call, "M", changed, "L", "reclaim", f"F 1 0 q {past}")


@drives("RUNNING reclaim retry, cancel asked")
def reclaim_cancelled(world: World) -> Step:
    job = expired_run(world)
    assert world.run(jobs.cancel(world.part, QUEUE, job.id, b"", world.tag())).code == "Q"
    tag = world.tag()
    changed = not_running(job) | buried(world, job, "K", 1, tag) | {f"cancels/{job.id}": GONE}
    return Step(job, reclaim(world, job, "R", tag), "K", changed, "L", "reclaim", "K 1")


def complete_late(world: World, job: Job, **changed: Any) -> Step:
    tag = world.tag()
    call = finish(world, job, "C", tag, result_ttl_ms=TTL_MS)
    gone = changed | buried(world, job, "C", 1, tag) | {f"attempts/{job.id}": GONE}
    gone[f"result:{job.id}"] = Expiring(RESULT.decode())
    return Step(job, call, "V", gone, "=", "finish", "C 1", WORKER)


@drives("SCHEDULED finish complete late")
def complete_while_due(world: World) -> Step:
    job = expired_run(world)
    world.run(reclaim(world, job, "R", world.tag()))
    return complete_late(world, job, **{f"due:q/{job.id}": GONE})


@drives("DISPATCHED finish complete late")
def complete_while_dispatched(world: World) -> Step:
    job = expired_run(world)
    world.run(reclaim(world, job, "R", world.tag()))
    world.advance(1000)
    assert world.run(owner.fire(world.part, QUEUE, [job.id], tag=world.tag())).codes == "D"
    return complete_late(world, job, **{f"dispatched/{job.id}": GONE})  # take settles its entry


@drives("FAILED finish complete late")
def complete_while_dead(world: World) -> Step:
    job = expired_run(world)
    world.run(reclaim(world, job, "F", world.tag(), CRASHED))
    return complete_late(world, job, **{f"dead:q/{job.id}": GONE})
