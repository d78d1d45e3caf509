"""What callers may pass as times, delays, counts, priorities and keys, and what they are told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from redjob.errors import InvalidArgument
from redjob.validate import (
    LIMITS,
    check_horizon,
    check_key,
    count_of,
    delay_ms_of,
    priority_of,
    seconds_of,
    wall_ms_of,
)

NOW_MS = 1_790_000_000_000
MORE_THAN_10_YEARS_S = LIMITS.horizon_s + 1


def test_a_moment_is_wall_ms_in_any_time_zone() -> None:
    assert wall_ms_of("when", datetime(1970, 1, 2, tzinfo=UTC)) == 86_400_000
    east = timezone(timedelta(hours=2))
    assert wall_ms_of("when", datetime(1970, 1, 2, 2, tzinfo=east)) == 86_400_000


def test_a_moment_between_two_ms_is_the_later_one_so_that_nothing_is_early() -> None:
    assert wall_ms_of("when", datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC)) == 1001
    assert wall_ms_of("when", datetime(1970, 1, 1, 0, 0, 1, 1000, tzinfo=UTC)) == 1001


def test_a_moment_before_1970_is_in_the_past_and_no_error() -> None:
    assert wall_ms_of("when", datetime(1, 1, 1, tzinfo=UTC)) == 1


@pytest.mark.parametrize("when", [datetime(2030, 1, 1), datetime.max])  # noqa: DTZ001, DTZ901
def test_a_datetime_without_a_time_zone_is_refused(when: datetime) -> None:
    with pytest.raises(InvalidArgument, match="when: is a datetime without a time zone; add one"):
        wall_ms_of("when", when)


@pytest.mark.parametrize("when", [1_790_000_000, 1.5, "2030-01-01T00:00:00Z", None, timedelta(1)])
def test_what_is_no_datetime_is_refused(when: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"when: is a .*; pass a datetime with a time zone"):
        wall_ms_of("when", when)


@pytest.mark.parametrize(
    ("delay", "ms"),
    [
        (0, 0),
        (0.0001, 1),
        (0.07, 70),
        (1.1, 1100),
        (timedelta(days=3), 259_200_000),
        (timedelta(microseconds=1), 1),
        (LIMITS.horizon_s, round(LIMITS.horizon_s * 1000)),
    ],
)
def test_a_delay_is_ms_rounded_up(delay: Any, ms: int) -> None:
    assert delay_ms_of("delay", delay) == ms


@pytest.mark.parametrize(
    ("delay", "told"),
    [
        (float("nan"), "is not finite"),
        (float("inf"), "is not finite"),
        (float("-inf"), "is not finite"),
        (10**400, "is not finite"),
        (-1, "is negative"),
        (-0.001, "is negative"),
        (timedelta(days=-1), "is negative"),
        (MORE_THAN_10_YEARS_S, "lies more than 10 years ahead"),
        (timedelta.max, "lies more than 10 years ahead"),
        (1e300, "lies more than 10 years ahead"),
        (True, "is a bool"),
        ("5", "is a str"),
        (None, "is a NoneType"),
    ],
)
def test_a_delay_that_makes_no_sense_is_refused(delay: Any, told: str) -> None:
    with pytest.raises(InvalidArgument, match=f"delay: {told}.*; ") as caught:
        delay_ms_of("delay", delay)
    assert caught.value.remedy


def test_the_horizon_is_counted_from_the_servers_clock() -> None:
    last_ms = NOW_MS + round(LIMITS.horizon_s * 1000)
    check_horizon("when", last_ms, NOW_MS)
    with pytest.raises(InvalidArgument, match="when: lies more than 10 years ahead; stay within"):
        check_horizon("when", last_ms + 1, NOW_MS)


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "1", None, True, 1e12])
def test_a_span_must_be_positive_and_finite(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="timeout_s: "):
        seconds_of("timeout_s", value)


def test_a_span_may_be_0_where_that_means_none() -> None:
    assert seconds_of("result_ttl_s", 0, zero=True) == 0.0
    with pytest.raises(InvalidArgument, match="pass 0 or more seconds"):
        seconds_of("result_ttl_s", -1, zero=True)


@pytest.mark.parametrize("value", [0, -3, 2.0, "3", True, None, 1 << 31])
def test_a_count_is_a_whole_number_of_1_or_more(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="max_crashes: "):
        count_of("max_crashes", value)


@pytest.mark.parametrize(
    ("priority", "number"), [("high", 2), ("normal", 5), ("low", 8), (0, 0), (9, 9)]
)
def test_a_priority_is_a_name_or_0_to_9(priority: Any, number: int) -> None:
    assert priority_of(priority) == number


@pytest.mark.parametrize("priority", [-1, 10, 5.0, "urgent", "5", "", None, True, float("nan")])
def test_another_priority_is_refused(priority: Any) -> None:
    with pytest.raises(
        InvalidArgument, match=r"priority: is .*; pass one of high, normal, low, or"
    ):
        priority_of(priority)


@pytest.mark.parametrize("key", ["k", "ü" * 127, "中文\u202e", "a b{c}\r\n\0", "x" * 255])
def test_a_key_is_any_text_of_up_to_255_bytes(key: str) -> None:
    assert check_key(key) == key


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("", "is ''"),
        ("x" * 256, "has 256 bytes"),
        ("ü" * 128, "has 256 bytes"),
        ("\ud800", "is not valid Unicode"),
        (b"k", "is b'k'"),
        (7, "is 7"),
    ],
)
def test_another_key_is_refused(key: Any, told: str) -> None:
    with pytest.raises(InvalidArgument, match=f"idempotency_key: {told}.*; "):
        check_key(key)
