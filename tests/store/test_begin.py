"""begin: a consumer in any language starts what it read by itself, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redjob.calls import work
from tests.support.dump import GONE, Journaled, changes
from tests.support.ground import LEASE_MS
from tests.support.seed import QUEUE

if TYPE_CHECKING:
    from redjob.calls.work import Begun
    from tests.support.world import World

THEIRS = "theirs"


def begin(world: World, *entries: tuple[str, str], worker: str = THEIRS) -> Begun:
    return world.run(
        work.begin(world.part, QUEUE, worker, entries, lease_ms=LEASE_MS, tag=world.tag())
    )


def add(world: World, **fields: str) -> str:
    """An entry in the stream that no script has put there, with its count."""
    entry = world.redis.xadd(world.part.queue(QUEUE).stream, fields)
    world.redis.hincrby(world.part.queue(QUEUE).flow, "depth", 1)
    return str(entry.decode())


def test_a_batch_that_was_read_starts_with_one_lease_and_one_journal_entry(world: World) -> None:
    new = [world.dispatched() for _ in range(3)]
    read = world.read(THEIRS)
    begun = begin(world, *read)
    assert (begun.codes, begun.attempts) == ("TTT", [1, 1, 1])
    state = world.check()
    entry = state[f"journal/{world.seq}"]
    assert isinstance(entry, Journaled)
    assert (entry.op, entry.worker) == ("take", THEIRS)
    assert entry.lines == tuple(job.line("T 1") for job in new)
    assert {state[f"running/{job.id}"] for job in new} == {world.now_ms + LEASE_MS}


def test_the_job_goes_on_like_any_other(world: World) -> None:
    job = world.dispatched()
    begin(world, *world.read(THEIRS))
    assert world.heartbeat(job, worker=THEIRS) == "H"
    assert world.finish(job, "C", worker=THEIRS) == "M"
    world.check()


def test_a_later_attempt_has_the_next_number(world: World) -> None:
    job = world.running()
    world.finish(job, "B")
    assert begin(world, *world.read(THEIRS)).attempts == [2]
    assert world.locate(job).run == b"2 theirs"


def test_who_lost_the_reply_asks_again_and_is_told_the_attempts(world: World) -> None:
    first, second = world.dispatched(), world.running()
    world.finish(second, "B")
    read = world.read(THEIRS)
    assert begin(world, *read).attempts == [1, 2]
    before = world.dump()
    again = begin(world, *read)
    assert (again.codes, again.attempts) == ("==", [1, 2])
    assert changes(before, world.check()) == {}
    world.finish(first, "C", worker=THEIRS)
    assert begin(world, *read).codes == "A="


def test_an_entry_named_twice_in_one_call_starts_its_job_once(world: World) -> None:
    world.dispatched()
    (read,) = world.read(THEIRS)
    begun = begin(world, read, read)
    assert (begun.codes, begun.attempts) == ("T=", [1, 1])
    assert world.check()["flow:q/depth"] == "0"


def test_a_job_that_was_cancelled_meanwhile_is_not_begun_and_its_entry_is_settled(
    world: World,
) -> None:
    job = world.dispatched()
    read = world.read(THEIRS)
    world.cancel(job)
    before = world.dump()
    assert begin(world, *read).codes == "A"
    gone = {"stream:q/e1": GONE, "stream:q/pending": GONE, "flow:q/depth": "0"}
    assert changes(before, world.check()) == gone


def test_an_entry_that_another_one_has_replaced_is_not_begun(world: World) -> None:
    job = world.dispatched()
    old = world.read(THEIRS)
    world.watch()
    assert world.requeue((job, old[0][0])) == "D"
    assert begin(world, *old).codes == "A"
    assert begin(world, *world.read("others"), worker="others").codes == "T"
    world.check()


def test_a_job_that_another_one_runs_is_not_begun(world: World) -> None:
    job = world.dispatched()
    entry = world.entry_of(job)
    world.take()
    before = world.dump()
    assert begin(world, (entry, job.id)).codes == "A"
    assert changes(before, world.check()) == {}


def test_the_entry_says_which_job_it_is_whatever_the_caller_says(world: World) -> None:
    job, other = world.dispatched(), world.dispatched()
    entry = world.entry_of(job)
    assert begin(world, (entry, other.id)).codes == "T"
    state = world.check()
    assert f"runs/{job.id}" in state
    assert f"dispatched/{other.id}" in state


def test_an_entry_that_is_not_ours_is_settled(world: World) -> None:
    world.dispatched()
    foreign, torn = add(world, hello="world"), add(world, id="x")
    assert begin(world, (foreign, "x"), (torn, "x")).codes == "AA"
    assert world.check()["flow:q/depth"] == "1"


def test_an_entry_that_nobody_knows_of_changes_nothing(world: World) -> None:
    job = world.scheduled()
    world.dispatched()
    before = world.dump()
    assert begin(world, ("1-1", job.id), ("1-2", "no such job")).codes == "AA"
    assert changes(before, world.check()) == {}


def test_an_entry_that_was_never_read_may_be_begun(world: World) -> None:
    job = world.dispatched()  # as by a consumer that uses XRANGE
    assert begin(world, (world.entry_of(job), job.id)).codes == "T"
    world.check()
