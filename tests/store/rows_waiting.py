"""Rows of the table of states that begin before a start, or after the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redjob.calls import jobs, owner, sweep, work
from tests.store.rows import INF, TTL_MS, Step, buried, drives, in_stream
from tests.support.dump import GONE, Expiring
from tests.support.seed import QUEUE
from tests.support.world import LEASE_MS, WORKER

if TYPE_CHECKING:
    from tests.support.dump import State
    from tests.support.seed import Job
    from tests.support.world import World


@drives("None enqueue later")
def enqueue_later(world: World) -> Step:
    at = world.now_ms + 60_000
    job, tag = world.job(run_at_ms=at), world.tag()
    call = jobs.enqueue(world.part, QUEUE, "default", 5, [job.new], tag)
    changed: State = {f"due:q/{job.id}": at, "queues/q": at, f"job:{job.id}": job.text}
    return Step(job, call, "S", changed, "E", "enqueue", f"S 0 {at} q", journal_again=True)


@drives("None enqueue now")
def enqueue_now(world: World) -> Step:
    job, tag = world.job(), world.tag()
    call = jobs.enqueue(world.part, QUEUE, "default", 5, [job.new], tag)
    changed = in_stream(job, first=True) | {"queues/q": INF, f"job:{job.id}": job.text}
    return Step(job, call, "D", changed, "E", "enqueue", "D 0 0 q", journal_again=True)


@drives("SCHEDULED fire")
def fire(world: World) -> Step:
    job = world.overdue()
    call = owner.fire(world.part, QUEUE, [job.id], tag=world.tag())
    changed = in_stream(job, first=True) | {f"due:q/{job.id}": GONE, "queues/q": INF}
    return Step(job, call, "D", changed, "A", "fire", "D")


@drives("SCHEDULED reschedule")
def reschedule(world: World) -> Step:
    job = world.scheduled()
    at = world.now_ms + 10
    call = jobs.reschedule(
        world.part, QUEUE, job.id, seen_ms=job.run_at_ms, run_at_ms=at, tag=world.tag()
    )
    changed: State = {f"due:q/{job.id}": at, "queues/q": at}
    return Step(job, call, "S", changed, "=", "reschedule", f"S 0 {at} q")


def cancel(world: World, job: Job, **changed: Any) -> Step:
    tag = world.tag()
    call = jobs.cancel(world.part, QUEUE, job.id, b"", tag)
    return Step(job, call, "K", changed | buried(world, job, "K", 0, tag), "K", "cancel", "K 0")


@drives("SCHEDULED cancel")
def cancel_scheduled(world: World) -> Step:
    job = world.scheduled()
    return cancel(world, job, **{f"due:q/{job.id}": GONE})


@drives("DISPATCHED cancel")
def cancel_dispatched(world: World) -> Step:
    job = world.dispatched()  # its entry stays: deleting it unread would make the group's lag nil
    return cancel(world, job, **{f"dispatched/{job.id}": GONE})


@drives("DISPATCHED take")
def take(world: World) -> Step:
    job, tag = world.dispatched(), world.tag()
    call = work.take(world.part, [QUEUE], WORKER, 10, lease_ms=LEASE_MS, tag=tag)
    changed: State = {
        f"dispatched/{job.id}": GONE,
        "stream:q/e1": GONE,
        "flow:q/depth": "0",
        "bell:q": GONE,  # drained: no token may wake anybody for it
        f"running/{job.id}": world.now_ms + LEASE_MS,
        f"runs/{job.id}": "1 worker1",
        "taken:worker1": Expiring(f"{tag} {job.id}"),
    }
    return Step(job, call, job.id, changed, job.id, "take", "T 1", WORKER)


@drives("DISPATCHED begin")
def begin(world: World) -> Step:
    job = world.dispatched()
    entry = world.entry_of(job)
    world.redis.xreadgroup("workers", "theirs", {world.part.queue(QUEUE).stream: ">"})
    call = work.begin(
        world.part, QUEUE, "theirs", [(entry, job.id)], lease_ms=LEASE_MS, tag=world.tag()
    )
    changed: State = {
        f"dispatched/{job.id}": GONE,
        "stream:q/e1": GONE,
        "stream:q/pending": GONE,
        "flow:q/depth": "0",
        f"running/{job.id}": world.now_ms + LEASE_MS,
        f"runs/{job.id}": "1 theirs",
    }
    return Step(job, call, "T", changed, "=", "take", "T 1", "theirs")


@drives("DISPATCHED release")
def release(world: World) -> Step:
    job = world.ready()
    call = owner.release(world.part, QUEUE, [job.id], tag=world.tag())
    changed = in_stream(job, first=True) | {f"ready:q/{job.id}": GONE, "flow:q/V": "1000"}
    return Step(job, call, "D", changed, "A", "release", "D")


@drives("DISPATCHED requeue")
def requeue(world: World) -> Step:
    job = world.dispatched()
    entry = world.entry_of(job)
    world.redis.xreadgroup("workers", "theirs", {world.part.queue(QUEUE).stream: ">"})
    world.watch()
    call = sweep.requeue(world.part, QUEUE, [(job.id, entry)], grace_ms=LEASE_MS, tag=world.tag())
    changed = in_stream(job, "e2", bell=2) | {"stream:q/e1": GONE, "stream:q/pending": GONE}
    del changed["flow:q/depth"]  # one more and one less
    return Step(job, call, "D", changed, "A", "requeue", "D")


def adopt(world: World, job: Job, **changed: Any) -> Step:
    call = work.heartbeat(world.part, WORKER, [job.beat()], lease_ms=LEASE_MS, tag=world.tag())
    changed[f"running/{job.id}"] = world.now_ms + LEASE_MS
    changed[f"runs/{job.id}"] = "1 worker1"
    return Step(job, call, "A", changed, "H", "heartbeat", "T 1", WORKER)


@drives("DISPATCHED heartbeat after rollback")
def adopt_dispatched(world: World) -> Step:
    job = world.dispatched()
    saved = world.save()
    assert [start.id for start in world.take().starts] == [job.id]
    world.restore(saved)
    return adopt(world, job, **{f"dispatched/{job.id}": GONE})


@drives("SCHEDULED heartbeat after rollback")
def adopt_scheduled(world: World) -> Step:
    job = world.overdue()
    saved = world.save()
    assert world.run(owner.fire(world.part, QUEUE, [job.id], tag=world.tag())).codes == "D"
    assert [start.id for start in world.take().starts] == [job.id]
    world.restore(saved)
    return adopt(world, job, **{f"due:q/{job.id}": GONE})


@drives("FAILED replay")
def replay(world: World) -> Step:
    job = world.running()
    world.finish(job, "F", result_ttl_ms=TTL_MS)
    died, tag = world.now_ms, world.tag()
    world.advance(5)
    at = world.now_ms
    call = jobs.replay(world.part, QUEUE, job.id, died_ms=died, past=b"{}", tag=tag)
    changed: State = {
        f"dead:q/{job.id}": GONE,
        f"due:q/{job.id}": at,
        "queues/q": at,
        f"attempts/{job.id}": f"1 {tag} {{}}",
        f"result:{job.id}": GONE,
    }
    return Step(job, call, "S", changed, "=", "replay", f"S 1 {at} q {{}}")
