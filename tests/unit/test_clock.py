"""The machine's clock, and the one that tests move."""

import time

import pytest

from redjob.clock import Clock, SystemClock
from redjob.testing import ManualClock


def test_the_wall_clock_of_the_system_is_unix_time_in_whole_milliseconds() -> None:
    before_ms = time.time_ns() // 1_000_000
    wall_ms = SystemClock().wall_ms()
    assert isinstance(wall_ms, int)
    assert before_ms <= wall_ms <= time.time_ns() // 1_000_000


def test_a_time_is_rounded_down_so_that_nothing_is_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_789_999_999_999_999_999)
    assert SystemClock().wall_ms() == 1_789_999_999_999


def test_the_monotonic_clock_of_the_system_is_the_one_that_waits_use() -> None:
    before = time.monotonic()
    assert before <= SystemClock().monotonic() <= time.monotonic()


def test_a_manual_clock_stands_until_it_is_advanced() -> None:
    clock = ManualClock(wall_ms=5_000, monotonic_s=7)
    assert (clock.wall_ms(), clock.monotonic()) == (5_000, 7.0)
    assert (clock.wall_ms(), clock.monotonic()) == (5_000, 7.0)


def test_advance_moves_both_readings_by_the_same_time() -> None:
    clock = ManualClock(wall_ms=5_000, monotonic_s=7)
    clock.advance(1_500)
    assert (clock.wall_ms(), clock.monotonic()) == (6_500, 8.5)


def test_many_small_steps_add_up_exactly() -> None:
    clock = ManualClock(wall_ms=0, monotonic_s=0)
    for _ in range(1000):
        clock.advance(1)
    assert (clock.wall_ms(), clock.monotonic()) == (1000, 1.0)


def test_a_sleep_on_a_manual_clock_passes_at_once_and_is_not_cut_short() -> None:
    clock = ManualClock(wall_ms=5_000, monotonic_s=7)
    clock.sleep(0.2501)
    assert (clock.wall_ms(), clock.monotonic()) == (5_251, 7.251)


def test_the_clock_of_the_system_sleeps_for_the_seconds_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    SystemClock().sleep(0.25)
    assert slept == [0.25]


def test_the_wall_clock_can_be_set_back_while_monotonic_time_stands() -> None:
    clock = ManualClock(wall_ms=5_000, monotonic_s=7)
    clock.shift_wall(-2_000)
    assert (clock.wall_ms(), clock.monotonic()) == (3_000, 7.0)


def test_time_cannot_be_advanced_backwards() -> None:
    with pytest.raises(ValueError, match="shift_wall"):
        ManualClock().advance(-1)


def test_both_clocks_fit_the_protocol() -> None:
    clocks: list[Clock] = [SystemClock(), ManualClock()]  # the type checkers are the test
    assert all(clock.wall_ms() > 0 for clock in clocks)
