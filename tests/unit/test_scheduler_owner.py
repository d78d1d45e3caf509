"""What an owner makes of its journal: what goes to the wheel, what may go from Redis, what breaks the chain."""

from __future__ import annotations

import pytest

from redjob.calls.call import Position
from redjob.calls.owner import Fence, Installed
from redjob.codec import JournalEntry
from redjob.errors import JournalForked
from redjob.keys import Keyspace
from redjob.scheduler.owner import JournalGap, PartitionOwner, Slot
from redjob.scheduler.rollback import lost_starts, went_back_to

NOW_MS = 1_790_000_000_000
PART = Keyspace("t", 1).parts[0]
ID = "00000000-0000-7000-8000-00000000{:04x}"


def owned(seq: int = 10, tag: str = "t10") -> PartitionOwner:
    return PartitionOwner(
        PART, Fence(2, "n"), Installed(Position(seq, 0, NOW_MS), "inc", "run", tag)
    )


def entry(
    seq: int, *lines: str, op: str = "enqueue", tag: str = "", prev: str = ""
) -> JournalEntry:
    block = "\n".join(lines).encode()
    return JournalEntry(seq, op, 2, tag or f"t{seq}", prev or f"t{seq - 1}", NOW_MS, block, "")


class Wheel:
    """Collects what is added."""

    def __init__(self) -> None:
        self.jobs: list[tuple[int, str, str | None]] = []

    def __call__(self, at_ms: int, slot: Slot, job_id: str | None) -> None:
        self.jobs.append((at_ms, slot.queue, job_id))


def scheduled(number: int, in_ms: int, queue: str = "q", rest: str = "") -> str:
    return f"{ID.format(number)} 2026-09-25 S 0 {NOW_MS + in_ms} {queue}{rest}"


def test_only_jobs_of_the_window_come_from_the_journal() -> None:
    partition, wheel = owned(), Wheel()
    partition.window_ms = NOW_MS + 5000
    partition.absorb([entry(11, scheduled(1, 5000), scheduled(2, 5001))], wheel, 0.0)
    assert wheel.jobs == [(NOW_MS + 5000, "q", ID.format(1))]


def test_where_the_wheel_holds_less_than_the_window_later_jobs_are_left_to_a_peek() -> None:
    partition, wheel = owned(), Wheel()
    partition.window_ms = NOW_MS + 5000
    partition.slot("q").covered_ms = NOW_MS + 1000
    lines = scheduled(1, 1000), scheduled(2, 1001), scheduled(3, 1001, "other")
    partition.absorb([entry(11, *lines)], wheel, 0.0)
    assert [job_id for _, _, job_id in wheel.jobs] == [ID.format(1), ID.format(3)]


@pytest.mark.parametrize(
    "line",
    [
        f"{ID.format(1)} 2026-09-25 D 0 {NOW_MS} q",
        f"{ID.format(1)} 2026-09-25 R 0 {NOW_MS} q",
        f"{ID.format(1)} 2026-09-25 T 1",
        f'{ID.format(1)} 2026-09-25 F 1 0 q {{"error":" S 1 2 q"}}',
        f"{ID.format(1)} 2026-09-25 C 1",
    ],
)
def test_other_lines_add_nothing_to_the_wheel(line: str) -> None:
    partition, wheel = owned(), Wheel()
    partition.window_ms = NOW_MS + 5000
    partition.absorb([entry(11, line, op="finish")], wheel, 0.0)
    assert wheel.jobs == []


def test_a_job_without_a_record_is_passed_over_until_it_was_dealt_with() -> None:
    partition = owned()
    slot = partition.slot("q")
    slot.lost = {ID.format(1), ID.format(2)}
    partition.absorb([entry(11, f"{ID.format(1)} - L 0", op="lose")], Wheel(), 0.0)
    assert slot.lost == {ID.format(2)}


def test_a_retry_with_a_past_goes_to_the_wheel() -> None:
    partition, wheel = owned(), Wheel()
    partition.window_ms = NOW_MS + 5000
    line = scheduled(1, 20, rest=' {"failures":1,"last":"failed"}')
    partition.absorb([entry(11, line, op="finish")], wheel, 0.0)
    assert wheel.jobs == [(NOW_MS + 20, "q", ID.format(1))]


def test_jobs_that_clients_parked_make_their_queue_known_as_one_with_ready_jobs() -> None:
    partition = owned()
    line = f"{ID.format(1)} 2026-09-25 R 0 0 slow"
    partition.absorb([entry(11, line)], Wheel(), 0.0)
    assert partition.slots["slow"].has_ready


def test_an_entry_that_does_not_follow_breaks_the_chain() -> None:
    with pytest.raises(JournalForked) as forked:
        owned().absorb([entry(11, prev="other")], Wheel(), 0.0)
    assert not isinstance(forked.value, JournalGap)
    with pytest.raises(JournalGap):
        owned().absorb([entry(12)], Wheel(), 0.0)


def test_the_journal_may_go_up_to_what_was_read_two_seconds_ago() -> None:
    partition = owned()
    assert partition.trim_point(100.0) == (0, "")
    partition.absorb([entry(11), entry(12)], Wheel(), 100.0)
    partition.absorb([entry(13)], Wheel(), 101.0)
    assert partition.trim_point(102.0) == (0, "")
    assert partition.trim_point(102.1) == (12, "t12")
    assert partition.trim_point(200.0) == (13, "t13")  # the last one itself stays


def test_tombstones_are_found_in_the_lines_that_left_them() -> None:
    partition = owned()
    finished = [f"{ID.format(n)} 2026-09-25 {place} 1" for n, place in enumerate("CKXSD")]
    partition.absorb([entry(11, *finished, op="finish")], Wheel(), 100.0)
    partition.absorb([entry(12, f"{ID.format(9)} 2026-09-25 K 0", op="cancel")], Wheel(), 130.0)
    assert list(partition.graves_before(100.0)) == []
    assert list(partition.graves_before(120.0)) == [ID.format(n) for n in range(3)]
    assert list(partition.graves_before(120.0)) == []
    assert list(partition.graves_before(131.0)) == [ID.format(9)]


def told(*entries: JournalEntry) -> PartitionOwner:
    partition = owned()
    partition.absorb(entries, Wheel(), 0.0)
    return partition


@pytest.mark.parametrize(
    ("seq", "tag", "tags", "back_to"),
    [
        pytest.param(13, "t13", {}, None, id="nothing lost"),
        pytest.param(20, "t20", {11: "t11", 12: "t12", 13: "t13"}, None, id="gone on"),
        pytest.param(20, "t20", {}, None, id="trimmed by another owner meanwhile"),
        pytest.param(12, "t12", {11: "t11", 12: "t12"}, 12, id="shorter"),
        pytest.param(13, "x13", {11: "t11", 12: "t12", 13: "x13"}, 12, id="number used again"),
        pytest.param(15, "x15", {11: "t11", 12: "x12", 13: "x13"}, 11, id="and gone on"),
        pytest.param(
            15, "x15", {11: "t11", 12: "x12", 13: "t13"}, 11, id="and a repeat has its old number"
        ),
        pytest.param(
            13, "t13", {11: "t11", 12: "x12", 13: "t13"}, 11, id="and a repeat comes last again"
        ),
        pytest.param(5, "t5", {}, 5, id="further back than is remembered"),
        pytest.param(15, "x15", {11: "x11", 12: "x12", 13: "x13"}, 10, id="all of it replaced"),
    ],
)
def test_a_rollback_is_told_by_the_last_entry_that_both_know(
    seq: int, tag: str, tags: dict[int, str], back_to: int | None
) -> None:
    known = told(entry(11), entry(12), entry(13)).remember()
    installed = Installed(Position(seq, 0, NOW_MS), "inc", "run", tag)
    assert went_back_to(known, installed, tags) == back_to


def test_starts_and_ends_of_attempts_in_a_lost_tail_are_named_once() -> None:
    taken = f"{ID.format(1)} 2026-09-25 T 2"
    ended = f"{ID.format(1)} 2026-09-25 C 2"
    fired = f"{ID.format(2)} 2026-09-25 D"
    entries = [
        entry(11, fired, op="fire"),
        entry(12, taken, op="take"),
        entry(13, ended, op="finish"),
    ]
    assert list(lost_starts(entries)) == [(ID.format(1), 2)]
