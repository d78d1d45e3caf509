"""The table of states, and what is left out of stored JSON."""

from __future__ import annotations

import msgspec
import pytest

from redjob.model import (
    LETTERS,
    PRIORITIES,
    TERMINAL,
    TRANSITIONS,
    JobState,
    Options,
    Record,
    Stub,
)


def test_the_terminal_states_say_so() -> None:
    assert {state for state in JobState if state.terminal} == TERMINAL


def test_no_row_of_the_table_stands_twice() -> None:
    assert len(set(TRANSITIONS)) == len(TRANSITIONS)
    starts = [(before, step) for before, step, _ in TRANSITIONS]
    assert len(set(starts)) == len(starts), "one call from one state has one outcome"


def test_only_a_replay_and_a_late_success_leave_a_terminal_state() -> None:
    left = {(before, step) for before, step, _ in TRANSITIONS if before in TERMINAL}
    assert left == {
        (JobState.FAILED, "finish complete late"),
        (JobState.FAILED, "replay"),
    }


def test_every_state_but_waiting_is_reached_from_nothing() -> None:
    reached: set[JobState | None] = {None}
    for _ in TRANSITIONS:
        reached |= {after for before, _, after in TRANSITIONS if before in reached}
    assert reached - {None} == set(JobState) - {JobState.WAITING}


def test_every_state_has_a_letter() -> None:
    assert set(LETTERS.values()) == set(JobState)
    assert all(len(letter) == 1 for letter in LETTERS)


def test_named_priorities_stand_in_their_order() -> None:
    assert PRIORITIES["high"] < PRIORITIES["normal"] < PRIORITIES["low"]
    assert all(0 <= value <= 9 for value in PRIORITIES.values())


def test_default_options_take_no_room() -> None:
    assert msgspec.json.encode(Options()) == b"{}"
    assert msgspec.json.encode(Options(max_attempts=3)) == b'{"max_attempts":3}'


@pytest.mark.parametrize(("run_at", "due"), [(0, 5), (9, 9)], ids=["now", "later"])
def test_a_job_is_first_due_at_its_time_or_when_it_was_made(run_at: int, due: int) -> None:
    record = Record(
        home="1970-01-01", created=5, run_at=run_at, task="t", queue="q", payload=msgspec.Raw(b"1")
    )
    assert record.due_ms == due


def test_the_state_of_a_stub_comes_first() -> None:
    """Scripts tell a stub from a record by its first nine bytes."""
    stub = Stub(state=JobState.FAILED, created=1, ended=2, body_hash="h")
    assert msgspec.json.encode(stub).startswith(b'{"state":"FAILED"')
