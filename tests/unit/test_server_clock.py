"""The server's clock as a scheduler sees it: never ahead, close, and right again after a jump."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redjob.scheduler.server_clock import ServerClock
from redjob.testing import ManualClock

AHEAD_MS = 4_000_000


def learned(clock: ManualClock, server_ms: float, *, way_ms: int, back_ms: int) -> ServerClock:
    server = ServerClock(clock)
    sent = clock.monotonic()
    clock.advance(way_ms + back_ms)
    server.learn(server_ms, sent=sent, received=clock.monotonic(), exact=True)
    return server


def test_the_estimate_is_late_by_the_way_back_and_not_by_more() -> None:
    clock = ManualClock()
    server = learned(clock, clock.wall_ms() + 20 + AHEAD_MS, way_ms=20, back_ms=3)
    assert server.now_ms() == clock.wall_ms() + AHEAD_MS - 3


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 4000))))
def test_the_estimate_is_never_ahead_of_the_server(exchanges: list[tuple[int, int, int]]) -> None:
    clock = ManualClock()
    server = learned(clock, clock.wall_ms() + AHEAD_MS, way_ms=0, back_ms=1)
    for way_ms, back_ms, pause_ms in exchanges:
        sent = clock.monotonic()
        clock.advance(way_ms)
        told = clock.wall_ms() + AHEAD_MS
        clock.advance(back_ms)
        server.learn(told, sent=sent, received=clock.monotonic())
        clock.advance(pause_ms)
        assert server.now_ms() <= clock.wall_ms() + AHEAD_MS


def test_a_slow_answer_does_not_spoil_what_a_quick_one_told() -> None:
    clock = ManualClock()
    server = learned(clock, clock.wall_ms() + AHEAD_MS, way_ms=0, back_ms=0)
    sent = clock.monotonic()
    told = clock.wall_ms() + AHEAD_MS
    clock.advance(500)
    server.learn(told, sent=sent, received=clock.monotonic())
    assert server.now_ms() == clock.wall_ms() + AHEAD_MS


def test_a_clock_that_is_set_back_is_followed_at_once() -> None:
    clock = ManualClock()
    server = learned(clock, clock.wall_ms() + AHEAD_MS, way_ms=0, back_ms=0)
    server.learn(clock.wall_ms(), sent=clock.monotonic(), received=clock.monotonic())
    assert server.now_ms() == clock.wall_ms()


def test_a_clock_that_is_set_forward_is_followed_at_once() -> None:
    clock = ManualClock()
    server = learned(clock, clock.wall_ms(), way_ms=0, back_ms=0)
    server.learn(clock.wall_ms() + AHEAD_MS, sent=clock.monotonic(), received=clock.monotonic())
    assert server.now_ms() == clock.wall_ms() + AHEAD_MS


def test_the_wait_ends_when_the_time_has_come_and_is_never_negative() -> None:
    clock = ManualClock()
    server = learned(clock, clock.wall_ms() + AHEAD_MS, way_ms=0, back_ms=0)
    at_ms = server.now_ms() + 250
    wait_s = server.wait_s(at_ms)
    assert 0.2499 < wait_s <= 0.2501
    clock.advance(250)
    assert server.now_ms() == at_ms
    clock.advance(250)
    assert server.wait_s(at_ms) == 0.0
