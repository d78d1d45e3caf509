"""Which errors of a server are asked again, for how long, and what a call ends in."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

import pytest
from redis import exceptions as rx

from redjob.errors import (
    ScriptFailed,
    ServerUnsuitable,
    SlotMoving,
    StoreFull,
    StoreUnavailable,
)
from redjob.store.policy import (
    FIRST_DELAY_S,
    LAST_DELAY_S,
    ConnectFailed,
    Tries,
    connect_error,
    read_with,
    reason,
)
from redjob.testing import ManualClock

if TYPE_CHECKING:
    from redjob.errors import RedjobError

DEADLINE_S = 30.0


def tries(clock: ManualClock, *, left_s: float = DEADLINE_S, follow_moves: bool = True) -> Tries:
    return Tries(
        "take", "redis://h", clock.monotonic() + left_s, clock, Random(1), follow_moves=follow_moves
    )


def no_connection(cause: BaseException) -> BaseException:
    return connect_error(cause, "redis://h")


REFUSED = [  # as redis-py raises them: where it has a class, the text lacks the word
    rx.BusyLoadingError("Redis is loading"),
    rx.ReadOnlyError("You can't write against a read only replica."),
    rx.NoScriptError("No matching script"),
    rx.MaxConnectionsError("too many"),
    rx.ClusterDownError("The cluster is down"),
    rx.MasterDownError("Link with MASTER is down and replica-serve-stale-data is set to 'no'."),
    rx.TryAgainError("Multiple keys request during rehashing of slot"),
    rx.AskError("1 127.0.0.1:7000"),
    rx.ResponseError("BUSY Redis is busy running a script"),
    rx.ResponseError("MISCONF Redis is configured to save RDB snapshots"),
    rx.ResponseError("NOREPLICAS Not enough good replicas to write."),
    rx.ResponseError("UNKILLABLE Sorry the script already executed write commands"),
    no_connection(OSError("refused")),
    no_connection(TimeoutError()),
]
UNKNOWN = [
    rx.ConnectionError("Connection closed by server."),
    rx.TimeoutError("Timeout reading"),
    OSError("broken pipe"),
    TimeoutError(),
    rx.InvalidResponse("Protocol Error"),
]


@pytest.mark.parametrize("exc", REFUSED, ids=repr)
def test_what_the_server_refused_is_asked_again_and_is_known_not_to_be_done(
    exc: BaseException,
) -> None:
    clock = ManualClock()
    asked = tries(clock)
    assert asked.after(exc) > 0
    assert not asked.unknown
    clock.advance(round(DEADLINE_S * 1000))
    with pytest.raises(StoreUnavailable) as caught:
        asked.after(exc)
    assert caught.value.outcome == "refused"


@pytest.mark.parametrize("exc", UNKNOWN, ids=repr)
def test_what_broke_off_may_have_been_done_whatever_comes_later(exc: BaseException) -> None:
    clock = ManualClock()
    asked = tries(clock)
    assert asked.after(exc) > 0
    assert asked.unknown
    clock.advance(round(DEADLINE_S * 1000))
    with pytest.raises(StoreUnavailable) as caught:
        asked.after(REFUSED[0])
    assert caught.value.outcome == "unknown"


@pytest.mark.parametrize(
    ("exc", "kind"),
    [
        (rx.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), StoreFull),
        (rx.ResponseError("OOM command not allowed when used memory"), StoreFull),
        (rx.NoPermissionError("this user has no permissions"), ServerUnsuitable),
        (rx.ResponseError("WRONGTYPE Operation against a key"), ScriptFailed),
        (rx.ResponseError("ERR finish knows no outcome Q"), ScriptFailed),
    ],
    ids=["memory class", "memory text", "permission", "wrong type", "error"],
)
def test_what_asking_again_does_not_mend_ends_the_call_at_once(
    exc: BaseException, kind: type[RedjobError]
) -> None:
    with pytest.raises(kind) as caught:
        tries(ManualClock()).after(exc)
    assert caught.value.__cause__ is exc


@pytest.mark.parametrize("exc", [KeyError("a bug"), ServerUnsuitable("told already")], ids=repr)
def test_what_is_no_trouble_of_a_server_goes_through(exc: Exception) -> None:
    with pytest.raises(type(exc)) as caught:
        tries(ManualClock()).after(exc)
    assert caught.value is exc


def test_waits_grow_with_jitter_and_stay_below_half_a_second() -> None:
    asked = tries(ManualClock(), left_s=1000)
    waits = [asked.after(UNKNOWN[0]) for _ in range(50)]
    assert all(FIRST_DELAY_S <= wait <= LAST_DELAY_S for wait in waits)
    assert all(wait <= FIRST_DELAY_S * 2 ** (n + 1) for n, wait in enumerate(waits))
    assert max(waits) > LAST_DELAY_S / 2
    assert len(set(waits)) > 40


def test_no_wait_goes_past_the_deadline() -> None:
    asked = tries(ManualClock(), left_s=0.005)
    assert asked.after(UNKNOWN[0]) <= 0.005 + 1e-9


def test_a_moved_slot_is_followed_at_once_a_few_times() -> None:
    asked = tries(ManualClock())
    moved = rx.MovedError("1 127.0.0.1:7000")
    assert [asked.after(moved) for _ in range(4)] == [0.0] * 4
    assert asked.after(moved) > 0
    assert not asked.unknown


def test_who_does_not_follow_moves_waits() -> None:
    assert tries(ManualClock(), follow_moves=False).after(rx.MovedError("1 127.0.0.1:7000")) > 0


def test_a_slot_that_moves_until_the_deadline_says_so() -> None:
    with pytest.raises(SlotMoving) as caught:
        tries(ManualClock(), left_s=0).after(rx.TryAgainError("Multiple keys request"))
    assert caught.value.outcome == "refused"


def test_an_outage_is_logged_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    asked = tries(clock)
    for _ in range(101):
        asked.after(UNKNOWN[0])
        clock.advance(100)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3  # at 0, 5 and 10 s
    assert said[0] == (
        "redis_unavailable server=redis://h call=take "
        "reason=ConnectionError: Connection closed by server."
    )


@pytest.mark.parametrize(
    "exc", [rx.AuthenticationError("WRONGPASS invalid"), rx.NoPermissionError("no")], ids=repr
)
def test_refused_credentials_are_not_tried_again(exc: BaseException) -> None:
    found = no_connection(exc)
    assert isinstance(found, ServerUnsuitable)
    with pytest.raises(ServerUnsuitable):
        tries(ManualClock()).after(found)


def test_a_reason_is_one_short_line_with_the_cause() -> None:
    assert reason(no_connection(OSError("refused\nsecond line"))) == "OSError: refused"
    assert reason(TimeoutError()) == "TimeoutError: "
    assert len(reason(rx.ResponseError("x" * 1000))) < 250
    assert isinstance(no_connection(OSError()), ConnectFailed)


def first_of(raw: list[bytes]) -> bytes:
    return raw[0]


READS: list[tuple[Callable[..., object], object]] = [
    (int, b"twelve"),
    (len, 5),
    (first_of, []),
    (bytes.decode, None),
]


@pytest.mark.parametrize(("read", "reply"), READS)
def test_a_reply_that_is_not_what_redjob_writes_is_an_error_of_its_own(
    read: Callable[..., object], reply: object
) -> None:
    with pytest.raises(ScriptFailed, match="an unreadable value"):
        read_with("read", read, reply)


def test_a_reply_that_can_be_read_is_read() -> None:
    assert read_with("read", int, b"12") == 12
