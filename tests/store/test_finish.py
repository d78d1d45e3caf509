"""finish: every outcome of the attempt that holds the lease, and nobody else's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from redjob.calls import work
from redjob.codec import decode_stub, decode_tombstone
from redjob.errors import ScriptFailed
from redjob.model import JobState, Past
from tests.support.dump import Expiring, Journaled, changes
from tests.support.seed import QUEUE, RESULT, STUB_TTL_MS, VERDICT
from tests.support.world import WORKER

if TYPE_CHECKING:
    from redjob.calls.work import End
    from tests.support.world import World

OUTCOMES = "CRZBFX"
STATES = {
    "C": JobState.COMPLETED,
    "R": JobState.SCHEDULED,
    "Z": JobState.SCHEDULED,
    "B": JobState.DISPATCHED,
    "F": JobState.FAILED,
    "X": JobState.EXPIRED,
}


def finish(world: World, *ends: End, tag: str | None = None, worker: str = WORKER) -> str:
    return world.run(work.finish(world.part, worker, ends, tag=tag or world.tag())).codes


def done(world: World) -> list[tuple[str, str]]:
    """What those who wait were told."""
    entries: list[Any] = world.redis.xrange(world.part.done)
    return [(fields[b"id"].decode(), fields[b"state"].decode()) for _, fields in entries]


def test_all_outcomes_in_one_call_are_one_journal_entry(world: World) -> None:
    running = [world.running(queue=f"q{n % 3}") for n in range(len(OUTCOMES))]
    ends = [job.end(outcome) for job, outcome in zip(running, OUTCOMES, strict=True)]
    assert finish(world, *ends) == "M" * len(OUTCOMES)
    state = world.check()
    for job, outcome in zip(running, OUTCOMES, strict=True):
        assert world.state_of(job) == STATES[outcome], outcome
    entry = state[f"journal/{world.seq}"]
    assert isinstance(entry, Journaled)
    assert [line.split(" ")[2] for line in entry.lines] == ["C", "S", "S", "D", "F", "X"]


def test_a_full_batch_is_one_call(world: World) -> None:
    new = [world.job() for _ in range(500)]
    world.enqueue(*new)
    world.take(500)
    assert finish(world, *[job.end("C") for job in new]) == "M" * 500
    state = world.check()
    assert not [name for name in state if name.startswith(("runs/", "running/", "job:"))]


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize(
    ("attempt", "worker"),
    [(1, "another"), (2, WORKER), (0, WORKER), (11, WORKER)],
    ids=["worker", "later", "none", "prefix"],
)
def test_who_does_not_hold_the_lease_changes_nothing(
    world: World, outcome: str, attempt: int, worker: str
) -> None:
    job = world.running()
    before = world.dump()
    assert finish(world, job.end(outcome, attempt), worker=worker) == "L"
    assert changes(before, world.check()) == {}


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_the_same_request_again_is_known_by_its_tag_and_another_is_lost(
    world: World, outcome: str
) -> None:
    job, tag = world.running(), world.tag()
    assert finish(world, job.end(outcome), tag=tag) == "M"
    before = world.dump()
    assert finish(world, job.end(outcome), tag=tag) == "="
    assert changes(before, world.check()) == {}
    if outcome in "CFX":
        assert finish(world, job.end(outcome)) == "L"
        assert changes(before, world.check()) == {}


def test_a_repeat_is_known_after_the_next_attempt_has_begun(world: World) -> None:
    job, tag = world.running(), world.tag()
    finish(world, job.end("B"), tag=tag)
    world.take()
    before = world.dump()
    assert finish(world, job.end("B"), tag=tag) == "="
    assert changes(before, world.check()) == {}


def test_a_lease_that_is_over_still_counts_until_somebody_ends_it(world: World) -> None:
    job = world.running(lease_ms=1)
    world.advance(100_000)
    assert world.finish(job, "C") == "M"


def test_an_outcome_that_nobody_knows_is_refused_before_anything_is_written(world: World) -> None:
    first, second = world.running(), world.running()
    before = world.dump()
    with pytest.raises(ScriptFailed, match="knows no outcome Q"):
        finish(world, first.end("C"), second.end("C")._replace(outcome="Q"))
    assert changes(before, world.dump()) == {}


def test_a_job_in_no_place_and_without_tombstone_is_said_to_be_nowhere(world: World) -> None:
    unknown, torn = world.job(), world.dispatched()
    world.redis.hdel(world.part.dispatched, torn.id)  # its record is there, and no place names it
    before = world.dump()
    assert finish(world, unknown.end("C"), torn.end("C")) == "NN"
    assert changes(before, world.dump()) == {}


def test_a_job_whose_record_is_gone_cannot_be_handed_back(world: World) -> None:
    job = world.running()
    world.redis.delete(world.part.job(job.id))
    before = world.dump()
    assert finish(world, job.end("B")) == "N"
    assert changes(before, world.dump()) == {}


def test_a_job_whose_record_is_gone_can_end_for_good(world: World) -> None:
    job = world.running()
    world.redis.delete(world.part.job(job.id))
    assert finish(world, job.end("C")) == "M"
    world.check()


def test_a_result_is_kept_for_its_time_and_not_at_all_with_none(world: World) -> None:
    kept, dropped, verdict = (world.running() for _ in range(3))
    ends = (
        kept.end("C", result_ttl_ms=5000),
        dropped.end("C"),
        verdict.end("F", result_ttl_ms=5000),
    )
    assert finish(world, *ends) == "MMM"
    state = world.check()
    assert state[f"result:{kept.id}"] == Expiring(RESULT.decode())
    assert state[f"result:{verdict.id}"] == Expiring(VERDICT.decode())
    assert f"result:{dropped.id}" not in state
    assert 0 < world.redis.pttl(world.part.result(kept.id)) <= 5000


def test_a_stub_stays_of_a_keyed_job_for_its_window(world: World) -> None:
    job = world.running(key="k")
    assert finish(world, job.end("C", stub=job.stub())) == "M"
    assert decode_stub(world.locate(job).doc).state == JobState.COMPLETED
    assert STUB_TTL_MS - 10_000 < world.redis.pttl(world.part.job(job.id)) <= STUB_TTL_MS
    world.check()


@pytest.mark.parametrize("stub", [b"", b"0 {}"], ids=["none", "window over"])
def test_no_record_stays_without_a_stub(world: World, stub: bytes) -> None:
    job = world.running(key="k")
    assert finish(world, job.end("C", stub=stub)) == "M"
    assert world.locate(job).doc == b""


def test_the_tombstone_says_where_and_when(world: World) -> None:
    job, tag = world.running(attempt=3), world.tag()
    world.advance(7)
    finish(world, job.end("X", 3), tag=tag)
    grave = decode_tombstone(world.locate(job).tombstone)
    assert grave == (JobState.EXPIRED, world.seq, world.now_ms, 3, tag)


def test_a_retry_is_due_after_its_delay_and_one_in_the_past_is_due_now(world: World) -> None:
    later, now = world.running(), world.running()
    finish(world, later.end("R", delay_ms=1500), now.end("R", delay_ms=-1500))
    state = world.check()
    assert state[f"due:q/{later.id}"] == world.now_ms + 1500
    assert state[f"due:q/{now.id}"] == state["queues/q"] == world.now_ms


def test_a_retry_keeps_what_the_attempt_left_for_the_next(world: World) -> None:
    job = world.running()
    past = Past(failures=4, last="failed")
    world.finish(job, "R", past=past, delay_ms=0)
    world.fire(job)
    (start,) = world.take().starts
    assert start.attempts.split(b" ", 2)[2] == b'{"failures":4,"last":"failed"}'


def test_an_end_for_good_leaves_no_attempts_behind(world: World) -> None:
    job = world.running(attempt=3)
    assert world.finish(job, "C", 3) == "M"
    assert world.locate(job).attempts == b""
    world.check()


@pytest.mark.parametrize("outcome", "RZB")
def test_a_job_that_would_go_on_ends_as_cancelled_when_that_was_asked(
    world: World, outcome: str
) -> None:
    job = world.running(key="k")
    assert world.cancel(job).code == "Q"
    assert finish(world, job.end(outcome, stub=job.stub(JobState.CANCELLED))) == "K"
    assert decode_stub(world.locate(job).doc).state == JobState.CANCELLED
    world.check()


@pytest.mark.parametrize("outcome", "CXF")
def test_a_job_that_ends_anyway_ends_as_it_did_although_a_cancel_was_asked(
    world: World, outcome: str
) -> None:
    job = world.running()
    world.cancel(job)
    assert finish(world, job.end(outcome)) == "M"
    assert world.state_of(job) == STATES[outcome]
    world.check()


def test_those_who_wait_are_told_of_ends_and_of_nothing_else(world: World) -> None:
    world.redis.set(world.part.waiters, "1", px=60_000)
    running = [world.running() for _ in OUTCOMES]
    cancelled = world.running()
    world.cancel(cancelled)
    ends = [job.end(outcome) for job, outcome in zip(running, OUTCOMES, strict=True)]
    finish(world, *ends, cancelled.end("R"))
    told = {
        (job.id, outcome)
        for job, outcome in zip(running, OUTCOMES, strict=True)
        if outcome in "CFX"
    }
    assert set(done(world)) == told | {(cancelled.id, "K")}
    world.check()


def test_nobody_is_told_when_nobody_waits(world: World) -> None:
    world.ended()
    assert done(world) == []


def test_a_job_that_is_handed_back_does_not_wait_for_room(world: World) -> None:
    job = world.running()
    world.limit(QUEUE, 0)
    assert world.finish(job, "B") == "M"
    assert [start.id for start in world.take().starts] == [job.id]


def test_a_past_with_line_feeds_is_one_line_in_the_journal(world: World) -> None:
    job, other = world.running(), world.running()
    past = b'{"last":\n"failed"}'
    ends = [job.end("R")._replace(data=past), other.end("B")._replace(data=past)]
    assert finish(world, *ends) == "MM"
    entry = world.dump()[f"journal/{world.seq}"]
    assert isinstance(entry, Journaled)
    assert [line.endswith(' {"last": "failed"}') for line in entry.lines] == [True, True]
