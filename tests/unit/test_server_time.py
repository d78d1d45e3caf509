"""The server's clock between two readings: what this machine's clock does meanwhile makes no difference."""

from __future__ import annotations

import pytest

from redjob.store.server_time import ServerTime
from redjob.testing import ManualClock

AHEAD_MS = 90_000


def reply(ms: float) -> tuple[bytes, bytes]:
    """What TIME answers."""
    return str(int(ms) // 1000).encode(), str(int(ms * 1000) % 1_000_000).encode()


def measured(clock: ManualClock, time: ServerTime, server_ms: int, *, way_ms: int = 0) -> None:
    """Ask a server whose clock shows server_ms half way."""
    sent = clock.monotonic()
    clock.advance(way_ms)
    time.learn(reply(server_ms), sent)


def test_as_long_as_nobody_was_asked_this_machines_clock_stands_in() -> None:
    clock = ManualClock()
    time = ServerTime(clock)
    assert time.is_old
    assert time.now_ms() == clock.wall_ms()


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_a_step_of_this_machines_clock_changes_nothing(step_ms: int) -> None:
    clock = ManualClock()
    time = ServerTime(clock)
    server_ms = clock.wall_ms() + AHEAD_MS
    measured(clock, time, server_ms)
    clock.shift_wall(step_ms)
    clock.advance(1234)
    assert time.now_ms() == server_ms + 1234


def test_half_of_the_way_is_taken_off() -> None:
    clock = ManualClock()
    time = ServerTime(clock)
    measured(clock, time, 1_790_000_000_000, way_ms=40)
    assert time.now_ms() == 1_790_000_000_020


def test_it_is_read_again_after_a_minute_and_then_follows_the_server() -> None:
    clock = ManualClock()
    time = ServerTime(clock)
    measured(clock, time, 1_790_000_000_000)
    clock.advance(60_000)
    was_old = [time.is_old]
    clock.advance(1)
    was_old.append(time.is_old)
    measured(clock, time, 1_790_000_060_050)
    assert [*was_old, time.is_old] == [False, True, False]
    assert time.now_ms() == 1_790_000_060_050


def test_a_reading_from_a_busy_server_does_not_spoil_a_good_one() -> None:
    clock = ManualClock()
    time = ServerTime(clock)
    measured(clock, time, 1_790_000_000_000, way_ms=2)
    clock.advance(60_001)
    before_ms = time.now_ms()
    measured(clock, time, before_ms, way_ms=2000)  # it answered at once, and read late
    assert time.now_ms() == before_ms + 2000
    assert not time.is_old, "asked again in a minute, not with each call"


def test_over_days_a_slow_reading_is_better_than_one_that_has_drifted() -> None:
    clock = ManualClock()
    time = ServerTime(clock)
    measured(clock, time, 1_790_000_000_000)
    clock.advance(2 * 86_400_000)
    server_ms = time.now_ms() + 5000
    measured(clock, time, server_ms, way_ms=400)
    assert time.now_ms() == server_ms + 200
