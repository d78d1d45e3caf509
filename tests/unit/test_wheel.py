"""The timing wheel against a sorted list: what has laws is tested by its laws."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,  # pyright: ignore[reportUnknownVariableType]  # not annotated by hypothesis
)

from redjob.errors import InvalidArgument
from redjob.scheduler.wheel import TimingWheel

NOW_MS = 1_790_000_000_000
DAY_MS = 86_400_000
LEVEL_WIDTHS_MS = [1 << 8, 1 << 16, 1 << 22, 1 << 28, 1 << 32]
MOST_MOVES = 6  # five cascades and the expiry


@st.composite
def spans(draw: st.DrawFn, lowest: int) -> int:
    """Draw a length of time of any magnitude, or one that ends beside a border between two levels."""
    width = draw(st.sampled_from([100, *LEVEL_WIDTHS_MS]))
    if draw(st.booleans()):
        return max(lowest, width + draw(st.integers(-2, 2)))
    return draw(st.integers(lowest, 3 * width))


@st.composite
def starts(draw: st.DrawFn) -> int:
    """Draw a start time, often beside a border between two slots of some level."""
    width = draw(st.sampled_from([1, *LEVEL_WIDTHS_MS]))
    return max(0, width * draw(st.integers(0, 500)) + draw(st.integers(-3, 3)))


class WheelMachine(RuleBasedStateMachine):
    """Drives a wheel and a plain list with the same steps and compares all that can be seen."""

    @initialize(start_ms=starts())
    def start(self, start_ms: int) -> None:
        self.wheel: TimingWheel[int] = TimingWheel(start_ms)
        self.now_ms = start_ms
        self.model: list[tuple[int, int]] = []
        self.added = 0

    @rule(ahead_ms=spans(-300))
    def add(self, ahead_ms: int) -> None:
        self.wheel.add(self.now_ms + ahead_ms, self.added)
        self.model.append((self.now_ms + ahead_ms, self.added))
        self.added += 1

    @precondition(lambda self: self.model)
    @rule(data=st.data(), beside_ms=st.integers(-1, 1))
    def add_near_another(self, data: st.DataObject, beside_ms: int) -> None:
        at_ms, _ = data.draw(st.sampled_from(self.model))
        self.add(at_ms + beside_ms - self.now_ms)

    @rule(step_ms=spans(0))
    def go_on(self, step_ms: int) -> None:
        self.now_ms += step_ms
        self.advance_to(self.now_ms)

    @rule(back_ms=st.integers(1, 1000))
    def clock_goes_back(self, back_ms: int) -> None:
        self.advance_to(self.now_ms - back_ms)

    @precondition(lambda self: self.model)
    @rule()
    def follow_next_ms_to_the_first_item(self) -> None:
        on_time_ms = max(self.now_ms, min(self.model)[0])
        for _ in range(MOST_MOVES):
            next_ms = self.wheel.next_ms()
            assert next_ms is not None
            self.now_ms = max(self.now_ms, next_ms)
            if self.advance_to(self.now_ms):
                break
        assert self.now_ms == on_time_ms

    @rule()
    def clear(self) -> None:
        self.wheel.clear()
        self.model = []

    @invariant()
    def the_length_is_that_of_the_list(self) -> None:
        assert len(self.wheel) == len(self.model)

    @invariant()
    def next_ms_is_a_lower_bound_and_exact_in_the_lowest_level(self) -> None:
        next_ms = self.wheel.next_ms()
        if not self.model:
            assert next_ms is None
            return
        first_ms = min(self.model)[0]
        assert next_ms is not None
        assert next_ms <= first_ms
        if first_ms >> 8 <= self.now_ms >> 8:
            assert next_ms == first_ms
        else:
            assert next_ms > self.now_ms

    def advance_to(self, now_ms: int) -> list[tuple[int, int]]:
        expected = sorted(entry for entry in self.model if entry[0] <= now_ms)
        self.model = [entry for entry in self.model if entry[0] > now_ms]
        due = self.wheel.advance(now_ms)
        assert due == expected
        return due


def test_the_wheel_behaves_like_a_sorted_list() -> None:
    run_state_machine_as_test(WheelMachine)


@given(
    start_ms=starts(),
    offsets=st.lists(spans(-300), max_size=60),
    steps=st.lists(st.one_of(st.integers(0, 40), spans(0)), max_size=30),
)
def test_each_item_comes_once_in_order_and_on_the_first_advance_at_or_after_its_time(
    start_ms: int, offsets: list[int], steps: list[int]
) -> None:
    wheel: TimingWheel[int] = TimingWheel(start_ms)
    for number, offset in enumerate(offsets):
        wheel.add(start_ms + offset, number)
    came: list[tuple[int, int]] = []
    now_ms = start_ms - 1
    for step in [0, *steps, 400 * DAY_MS]:
        last_ms, now_ms = now_ms, max(start_ms, now_ms) + step
        due = wheel.advance(now_ms)
        assert all(at_ms <= now_ms for at_ms, _ in due)
        assert all(at_ms > last_ms or last_ms < start_ms for at_ms, _ in due)
        came += due
    assert came == sorted((start_ms + offset, number) for number, offset in enumerate(offsets))
    assert len(wheel) == 0


def test_an_item_is_not_returned_one_millisecond_before_its_time() -> None:
    wheel: TimingWheel[str] = TimingWheel(NOW_MS)
    for width in [1, *LEVEL_WIDTHS_MS]:
        wheel.add(NOW_MS + width, f"{width}")
    for width in [1, *LEVEL_WIDTHS_MS]:
        assert wheel.advance(NOW_MS + width - 1) == []
        assert wheel.advance(NOW_MS + width) == [(NOW_MS + width, f"{width}")]


@pytest.mark.parametrize("width", LEVEL_WIDTHS_MS)
def test_an_item_in_the_last_millisecond_of_a_slot_does_not_come_with_the_one_before(
    width: int,
) -> None:
    border_ms = NOW_MS // width * width
    wheel: TimingWheel[str] = TimingWheel(border_ms)
    last_ms = border_ms + 2 * width - 1
    wheel.add(last_ms - 1, "last but one")
    wheel.add(last_ms, "last")
    assert wheel.advance(last_ms - 1) == [(last_ms - 1, "last but one")]
    assert wheel.advance(last_ms) == [(last_ms, "last")]


def test_items_already_due_come_with_the_next_advance_and_keep_their_times() -> None:
    wheel: TimingWheel[str] = TimingWheel(NOW_MS)
    wheel.add(NOW_MS, "now")
    wheel.add(NOW_MS - 5, "past")
    wheel.add(0, "epoch")
    wheel.add(-1, "before it")
    assert wheel.next_ms() == -1
    assert wheel.advance(NOW_MS) == [
        (-1, "before it"),
        (0, "epoch"),
        (NOW_MS - 5, "past"),
        (NOW_MS, "now"),
    ]
    assert wheel.advance(NOW_MS) == []


def test_items_of_one_millisecond_keep_the_order_in_which_they_were_added() -> None:
    wheel: TimingWheel[str] = TimingWheel(NOW_MS)
    at_ms = NOW_MS + DAY_MS
    wheel.add(at_ms, "added a day before")
    wheel.advance(at_ms - 10_000)
    wheel.add(at_ms, "added seconds before")
    wheel.advance(at_ms - 1)
    wheel.add(at_ms, "added just before")
    assert [item for _, item in wheel.advance(at_ms)] == [
        "added a day before",
        "added seconds before",
        "added just before",
    ]


def test_a_clock_that_goes_back_is_no_reason_to_return_or_to_lose_anything() -> None:
    wheel: TimingWheel[str] = TimingWheel(NOW_MS)
    wheel.add(NOW_MS + 10, "later")
    assert wheel.advance(NOW_MS - DAY_MS) == []
    assert wheel.advance(NOW_MS + 9) == []
    assert wheel.advance(NOW_MS + 10) == [(NOW_MS + 10, "later")]


def test_after_the_clock_went_back_new_items_are_due_by_the_corrected_clock() -> None:
    wheel: TimingWheel[str] = TimingWheel(NOW_MS)
    wheel.add(NOW_MS - 100, "due by the corrected clock")
    wheel.add(NOW_MS - 10, "not yet")
    assert wheel.advance(NOW_MS - 50) == [(NOW_MS - 100, "due by the corrected clock")]
    assert wheel.next_ms() == NOW_MS - 10
    assert wheel.advance(NOW_MS - 10) == [(NOW_MS - 10, "not yet")]


def test_a_jump_over_ten_years_costs_no_step_per_millisecond() -> None:
    wheel: TimingWheel[int] = TimingWheel(NOW_MS)
    times = [NOW_MS + day * DAY_MS for day in range(0, 3650, 7)]
    for at_ms in times:
        wheel.add(at_ms, at_ms)
    assert wheel.advance(NOW_MS + 3650 * DAY_MS) == [(at_ms, at_ms) for at_ms in times]
    assert wheel.next_ms() is None


def test_a_wheel_that_starts_at_zero_reaches_today_in_one_step() -> None:
    wheel: TimingWheel[str] = TimingWheel(0)
    wheel.add(NOW_MS, "today")
    assert wheel.advance(NOW_MS - 1) == []
    assert wheel.advance(NOW_MS) == [(NOW_MS, "today")]


def test_an_item_added_twice_comes_twice() -> None:
    wheel: TimingWheel[str] = TimingWheel(NOW_MS)
    wheel.add(NOW_MS + 1, "twice")
    wheel.add(NOW_MS + 1, "twice")
    assert wheel.advance(NOW_MS + 1) == [(NOW_MS + 1, "twice")] * 2


def test_clear_drops_every_item_and_keeps_the_time() -> None:
    wheel: TimingWheel[str] = TimingWheel(NOW_MS)
    for ahead_ms in (-1, 0, 1, *LEVEL_WIDTHS_MS, 2 * LEVEL_WIDTHS_MS[-1]):
        wheel.add(NOW_MS + ahead_ms, "old")
    wheel.next_ms()  # places these, so that placed and new ones are dropped
    wheel.add(NOW_MS + 5, "old")
    wheel.clear()
    assert len(wheel) == 0
    assert wheel.next_ms() is None
    wheel.add(NOW_MS + 5, "new")
    assert wheel.advance(NOW_MS + 1000 * DAY_MS) == [(NOW_MS + 5, "new")]


def test_a_negative_start_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="start_ms"):
        TimingWheel[str](-1)
