"""take: what starts, in which order and how much at once; what is settled; and the repeated request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from redjob.calls import work
from redjob.model import Past
from tests.support.dump import GONE, Journaled, changes
from tests.support.ground import LEASE_MS
from tests.support.seed import QUEUE
from tests.support.world import WORKER

if TYPE_CHECKING:
    from redjob.calls.work import Taken
    from tests.support.seed import Job
    from tests.support.world import World

MIB = 1 << 20


def repeat(world: World, tag: str, *, worker: str = WORKER) -> Taken:
    """The same request again, as a worker that got no answer sends it."""
    call = work.take(world.part, [QUEUE], worker, 10, lease_ms=LEASE_MS, tag=tag)
    call.args[call.again_at] = "1"
    return world.run(call)


def ids(taken: Taken) -> list[str]:
    return [start.id for start in taken.starts]


def large(world: World, n: int, *, queue: str = QUEUE) -> list[Job]:
    """Jobs whose records have about 100 kB each."""
    payload = b'"' + b"x" * 100_000 + b'"'
    return [world.dispatched(queue=queue, payload=payload) for _ in range(n)]


def test_jobs_start_in_the_order_of_their_stream_up_to_n_and_in_one_journal_entry(
    world: World,
) -> None:
    new = [world.dispatched() for _ in range(8)]
    before = world.dump()
    taken = world.take(6)
    after = world.check()
    assert [(start.id, start.attempts, start.doc) for start in taken.starts] == [
        (job.id, b"", job.doc) for job in new[:6]
    ]
    entry = changes(before, after)[f"journal/{world.seq}"]
    assert isinstance(entry, Journaled)
    assert (entry.op, entry.worker) == ("take", WORKER)
    assert entry.lines == tuple(job.line("T 1") for job in new[:6])
    assert after["flow:q/depth"] == "2"


def test_queues_are_emptied_in_the_order_of_the_worker(world: World) -> None:
    low = [world.dispatched(queue="low") for _ in range(3)]
    high = [world.dispatched(queue="high") for _ in range(3)]
    taken = world.take(5, queues=("high", "low"))
    assert ids(taken) == [job.id for job in high + low[:2]]
    state = world.check()
    assert (state["flow:high/depth"], state["flow:low/depth"]) == ("0", "1")


def test_a_full_batch_is_one_call(world: World) -> None:
    new = [world.job() for _ in range(500)]
    world.enqueue(*new)
    assert ids(world.take(500)) == [job.id for job in new]
    world.check()


def test_large_records_are_taken_a_mebibyte_at_a_time(world: World) -> None:
    first, other = large(world, 15), large(world, 1, queue="other")
    taken = world.take(100, queues=(QUEUE, "other"))
    size = sum(len(start.doc) for start in taken.starts)
    assert MIB <= size <= MIB + len(first[0].doc)
    assert ids(taken) == [job.id for job in first[: len(taken.starts)]]
    state = world.check()
    left = first[len(taken.starts) :]
    assert state["flow:q/depth"] == str(len(left))
    assert ids(world.take(100, queues=(QUEUE, "other"))) == [job.id for job in left + other]


def test_a_paused_queue_is_not_read_and_the_others_are(world: World) -> None:
    paused, other = world.dispatched(), world.dispatched(queue="other")
    world.redis.hset(world.part.queue(QUEUE).flow, "paused", "1")
    assert ids(world.take(queues=(QUEUE, "other"))) == [other.id]
    assert world.check()["bell:q"] == 1
    world.redis.hdel(world.part.queue(QUEUE).flow, "paused")
    assert ids(world.take(queues=(QUEUE, "other"))) == [paused.id]


def test_nothing_to_take_changes_nothing(world: World) -> None:
    world.scheduled()
    before = world.dump()
    taken = world.take(queues=(QUEUE, "never-seen"))
    assert (taken.starts, taken.stale, taken.release) == ([], [], False)
    assert changes(before, world.check()) == {}


def test_tokens_stay_while_entries_are_left(world: World) -> None:
    for _ in range(6):
        world.dispatched()
    world.take(4)
    assert world.check()["bell:q"] == 6
    world.take(4)
    assert "bell:q" not in world.check()


def test_an_entry_that_nothing_names_is_settled_without_a_start(world: World) -> None:
    cancelled, job = world.dispatched(), world.dispatched()
    world.cancel(cancelled)
    taken = world.take()
    assert (ids(taken), taken.stale) == ([job.id], [cancelled.id])
    state = world.check()
    assert not [name for name in state if name.startswith("stream:q/")]
    assert f"runs/{cancelled.id}" not in state


def test_stale_entries_alone_are_no_change_of_any_job(world: World) -> None:
    cancelled = world.dispatched()
    world.cancel(cancelled)
    before = world.dump()
    assert world.take().stale == [cancelled.id]
    changed = changes(before, world.check())
    assert changed == {"stream:q/e1": GONE, "flow:q/depth": "0", "bell:q": GONE}


def test_an_older_entry_of_a_job_does_not_start_it_a_second_time(world: World) -> None:
    job = world.dispatched()
    world.redis.xadd(world.part.queue(QUEUE).stream, {"id": job.id, "doc": job.doc})
    world.redis.hincrby(world.part.queue(QUEUE).flow, "depth", 1)
    taken = world.take()
    assert (ids(taken), taken.stale) == ([job.id], [job.id])
    world.check()


@pytest.mark.parametrize(
    "fields",
    [{"hello": "world"}, {"id": "x"}, {"doc": "{}", "id": "x"}, {"id": "x y", "doc": "{}"}],
    ids=["other fields", "no record", "other order", "no id of ours"],
)
def test_an_entry_that_is_not_ours_is_settled_and_not_spoken_of(
    world: World, fields: dict[str, str]
) -> None:
    job = world.dispatched()
    world.redis.xadd(world.part.queue(QUEUE).stream, fields)
    world.redis.hincrby(world.part.queue(QUEUE).flow, "depth", 1)
    taken = world.take()
    assert (ids(taken), taken.stale) == ([job.id], [])
    assert world.check()["flow:q/depth"] == "0"


def test_a_later_attempt_is_told_what_the_ones_before_left(world: World) -> None:
    job = world.running()
    world.finish(job, "B", past=Past(failures=2))
    field = world.locate(job).attempts
    (start,) = world.take().starts
    assert (start.id, start.attempts) == (job.id, field)
    assert world.locate(job).run == b"2 worker1"
    entry = world.check()[f"journal/{world.seq}"]
    assert isinstance(entry, Journaled)
    assert entry.lines == (job.line("T 2"),)


def test_a_job_with_a_past_beside_one_without(world: World) -> None:
    old = world.running()
    world.finish(old, "B")
    new = world.dispatched()
    assert [(start.id, bool(start.attempts)) for start in world.take().starts] == [
        (old.id, True),
        (new.id, False),
    ]


def test_it_asks_for_a_release_when_ready_jobs_have_room_by_now(world: World) -> None:
    world.limit(QUEUE, 2)
    world.enqueue(*[world.job() for _ in range(4)])
    assert world.take(1).release
    world.limit(QUEUE, 0)
    assert not world.take(1).release


def test_a_repeated_request_has_the_same_jobs_and_changes_nothing(world: World) -> None:
    old = world.running()
    world.finish(old, "B", past=Past(failures=1))
    world.dispatched()
    first = world.take()
    tag = str(world.dump()["meta/tag"])
    world.dispatched()  # came meanwhile: a repeat must not begin it
    before = world.dump()
    again = repeat(world, tag)
    assert [(start.id, start.attempts) for start in again.starts] == [
        (start.id, start.attempts) for start in first.starts
    ]
    assert [start.doc for start in again.starts] == [b"", b""]
    assert changes(before, world.check()) == {}


def test_a_repeat_names_only_the_jobs_that_are_still_the_workers(world: World) -> None:
    ended, lost, mine = (world.dispatched() for _ in range(3))
    world.take()
    tag = str(world.dump()["meta/tag"])
    world.finish(ended, "C")
    world.redis.hset(world.part.runs, lost.id, "2 another")
    assert ids(repeat(world, tag)) == [mine.id]


def test_a_repeat_of_a_request_that_never_arrived_takes(world: World) -> None:
    world.dispatched()
    world.take()
    second = world.dispatched()
    assert ids(repeat(world, "never-arrived")) == [second.id]


def test_each_worker_has_a_memory_of_its_own(world: World) -> None:
    first, second = world.dispatched(), world.dispatched()
    world.take(1, worker="a")
    tag = str(world.dump()["meta/tag"])
    world.take(1, worker="b")
    assert ids(repeat(world, tag, worker="a")) == [first.id]
    assert second.id in {job_id.decode() for job_id in world.redis.hkeys(world.part.runs)}


def test_the_memory_of_a_take_ends_by_itself(world: World) -> None:
    world.dispatched()
    world.take()
    assert 0 < world.redis.pttl(world.part.taken(WORKER)) <= 120_000


def test_a_group_that_was_lost_with_its_stream_is_made_anew(world: World) -> None:
    job = world.dispatched()
    world.redis.xgroup_destroy(world.part.queue(QUEUE).stream, "workers")
    assert ids(world.take()) == []
    assert ids(world.take()) == [job.id]
    world.check()


def test_entries_that_a_consumer_was_given_are_not_taken(world: World) -> None:
    theirs = world.dispatched()
    assert [job_id for _, job_id in world.read()] == [theirs.id]
    ours = world.dispatched()
    assert ids(world.take()) == [ours.id]
    world.begin(theirs, worker="theirs")
    world.check()
