"""Calls on several jobs at once, for tests of what one damaged key does to the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from redjob.calls import jobs, owner, sweep, work
from redjob.calls.owner import Parked
from redjob.calls.sweep import Expired
from tests.support.ground import LEASE_MS
from tests.support.seed import QUEUE, Job
from tests.support.world import CRASHED, WORKER, World

if TYPE_CHECKING:
    from redjob.calls.call import Call


class Batch(NamedTuple):
    """A call and the jobs that it is about."""

    jobs: list[Job]
    call: Call[Any]


Maker = Callable[[World], Batch]


def enqueue_over_the_limit(world: World) -> Batch:
    world.limit(QUEUE, 1)
    new = [world.job(), world.job(), world.job(run_at_ms=world.now_ms + 1000)]
    call = jobs.enqueue(world.part, QUEUE, "default", 5, [job.new for job in new], world.tag())
    return Batch(new, call)


def enqueue_a_key_again(world: World) -> Batch:
    world.ended(key="k")
    job = world.job(key="k")
    return Batch([job], jobs.enqueue(world.part, QUEUE, "default", 5, [job.new], world.tag()))


def due(world: World) -> list[Job]:
    found = [world.scheduled(in_ms=1) for _ in range(3)]
    world.advance(1)
    return found


def fire(world: World) -> Batch:
    found = due(world)
    return Batch(found, owner.fire(world.part, QUEUE, [job.id for job in found], tag=world.tag()))


def park(world: World) -> Batch:
    found = due(world)
    world.limit(QUEUE, 1)
    seen = [Parked(job.id, job.run_at_ms, job.priority, job.tenant) for job in found]
    return Batch(found, owner.park(world.part, QUEUE, seen, tag=world.tag()))


def release(world: World) -> Batch:
    found = [world.ready(), world.ready()]
    return Batch(
        found, owner.release(world.part, QUEUE, [job.id for job in found], tag=world.tag())
    )


def take(world: World) -> Batch:
    old = world.running()
    world.finish(old, "B")
    found = [old, world.dispatched(), world.dispatched(queue="other")]
    queues = [QUEUE, "other"]
    call = work.take(world.part, queues, WORKER, 10, lease_ms=LEASE_MS, tag=world.tag())
    return Batch(found, call)


def begin(world: World) -> Batch:
    found = [world.dispatched(), world.dispatched()]
    read = world.read()
    call = work.begin(world.part, QUEUE, "theirs", read, lease_ms=LEASE_MS, tag=world.tag())
    return Batch(found, call)


def heartbeat(world: World) -> Batch:
    lost = world.dispatched()
    saved = world.save()
    world.take()
    world.restore(saved)
    beats, mine = world.running(), world.running(queue="other")
    all_beats = [beats.beat(progress=b"{}", past=b"{}"), lost.beat(), mine.beat(past=b"{}")]
    call = work.heartbeat(world.part, WORKER, all_beats, lease_ms=LEASE_MS, tag=world.tag())
    return Batch([beats, lost, mine], call)


def finish(world: World) -> Batch:
    world.redis.set(world.part.waiters, "1", px=60_000)
    found = [world.running(queue=queue) for queue in ("a", "b", "a", "b", "a", "a")]
    world.cancel(found[5])
    ends = [
        job.end(outcome, result_ttl_ms=60_000) for job, outcome in zip(found, "CFRBXZ", strict=True)
    ]
    return Batch(found, work.finish(world.part, WORKER, ends, tag=world.tag()))


def finish_late(world: World) -> Batch:
    late = [world.running(lease_ms=1) for _ in range(3)]
    world.watch()
    world.reclaim(late[0])
    world.reclaim(late[1], outcome="F", past=CRASHED)
    world.reclaim(late[2], delay_ms=0)
    world.fire(late[2])
    found = [world.running(), *late, world.running()]
    ends = [job.end("C") for job in found]
    return Batch(found, work.finish(world.part, WORKER, ends, tag=world.tag()))


def reclaim(world: World) -> Batch:
    world.redis.set(world.part.waiters, "1", px=60_000)
    found = [world.running(lease_ms=1, queue=queue) for queue in ("a", "b", "a")]
    world.heartbeat(found[0], progress=b"{}")
    world.advance(LEASE_MS)
    world.watch()
    world.cancel(found[2])
    expired = [
        Expired(b"1 worker1", job.end(outcome, result_ttl_ms=60_000))
        for job, outcome in zip(found, "RFR", strict=True)
    ]
    return Batch(found, sweep.reclaim(world.part, expired, grace_ms=1, tag=world.tag()))


def requeue(world: World) -> Batch:
    found = [world.dispatched(), world.dispatched(), world.dispatched()]
    pairs = [(job_id, entry) for entry, job_id in world.read()]
    world.cancel(found[2])
    world.watch()
    return Batch(found[:2], sweep.requeue(world.part, QUEUE, pairs, grace_ms=1, tag=world.tag()))


def purge(world: World) -> Batch:
    found = [world.dead(key="k"), world.dead()]
    pairs = [(found[0].id, found[0].stub()), (found[1].id, b"")]
    return Batch(found, sweep.purge(world.part, QUEUE, pairs, keep_ms=0, tag=world.tag()))


def recount(world: World) -> Batch:
    found = [world.dispatched(), world.dispatched()]
    entries = [entry for entry, _ in world.read()]
    world.cancel(found[0])
    return Batch(found[1:], sweep.recount(world.part, QUEUE, entries))


def lose(world: World) -> Batch:
    """One that waits, one that runs no more, one whose entry carries its record."""
    found = [world.scheduled(), world.running(lease_ms=1), world.dispatched()]
    world.cancel(found[1])
    world.advance(1)
    world.redis.delete(*[world.part.job(job.id) for job in found])
    ids = [job.id for job in found]
    return Batch(found, sweep.lose(world.part, [QUEUE], ids, tag=world.tag()))


BATCHES: dict[str, Maker] = {
    maker.__name__: maker
    for maker in (
        enqueue_over_the_limit, enqueue_a_key_again, fire, park, release, take, begin, heartbeat,
        finish, finish_late, reclaim, requeue, purge, recount, lose,
    )
}  # fmt: skip
