"""One retry policy for every call: which errors are asked again, how long, and as what it ends."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from redis import exceptions as rx

from redjob.clock import Clock
from redjob.errors import (
    RedjobError,
    ScriptFailed,
    ServerUnsuitable,
    SlotMoving,
    StoreFull,
    StoreUnavailable,
)
from redjob.store.routes import Address, Routes

T = TypeVar("T")
log = logging.getLogger("redjob.store")

FIRST_DELAY_S = 0.02
LAST_DELAY_S = 0.5
SAY_EVERY_S = 5.0
_MOVES = 4  # more in one call is a cluster that does not agree with itself

# The server answered: it did nothing. Asking again is harmless.
_REFUSED_WORDS = (
    "LOADING", "BUSY ", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "MISCONF",
    "NOREPLICAS", "MOVED", "ASK", "NOSCRIPT", "max number of clients", "UNKILLABLE",
)  # fmt: skip
# redis-py cuts the word off where it has a class for it.
_REFUSED = (
    rx.BusyLoadingError, rx.ReadOnlyError, rx.NoScriptError, rx.MaxConnectionsError, rx.AskError,
    rx.TryAgainError, rx.ClusterDownError,
)  # fmt: skip
_UNSUITABLE = (
    rx.AuthenticationError,
    rx.AuthorizationError,
    rx.NoPermissionError,
    rx.AuthenticationWrongNumberOfArgsError,
)


class ConnectFailed(Exception):
    """No connection was made: nothing can have been sent."""


# The server is there: only this slot is on its way.
_MOVING = (rx.TryAgainError, rx.AskError)
_ELSEWHERE = (
    ConnectFailed, rx.ConnectionError, rx.ReadOnlyError, rx.ClusterDownError, OSError, TimeoutError,
)  # fmt: skip
_ASKED_AGAIN = (ConnectFailed, rx.RedisError, OSError, TimeoutError)


class Tries:
    """The tries of one call, until `deadline` on the monotonic clock."""

    def __init__(
        self,
        what: str,
        shown: str,
        deadline: float,
        clock: Clock,
        rng: random.Random,
        *,
        follow_moves: bool = True,
    ) -> None:
        self._what = what
        self._shown = shown
        self._deadline = deadline
        self._clock = clock
        self._rng = rng
        self._delay_s = FIRST_DELAY_S
        self._said_at = -SAY_EVERY_S
        self._moves_left = _MOVES if follow_moves else 0
        self.unknown = False  # an earlier try ended without a reply: it may have been carried out

    def after(self, exc: BaseException) -> float:
        """Return how long to wait before the next try, in seconds, with full jitter.

        Raises the RedjobError that the call ends in, when another try is of no use or too late.
        """
        if not isinstance(exc, _ASKED_AGAIN):
            raise exc
        if isinstance(exc, rx.MovedError) and self._moves_left > 0:
            self._moves_left -= 1  # the right server is known now: that costs no try
            return 0.0
        refused = _is_refused(exc)
        if not refused and isinstance(exc, rx.ResponseError):
            raise _final(self._what, exc) from exc
        if not refused:
            self.unknown = True
        now = self._clock.monotonic()
        if now >= self._deadline:
            outcome = "unknown" if self.unknown else "refused"
            kind = SlotMoving if isinstance(exc, _MOVING) else StoreUnavailable
            raise kind(f"{self._shown}: {reason(exc)}", outcome=outcome) from exc
        if now - self._said_at >= SAY_EVERY_S:
            log.warning(
                "redis_unavailable server=%s call=%s reason=%s",
                self._shown,
                self._what,
                reason(exc),
            )
            self._said_at = now
        self._delay_s = min(LAST_DELAY_S, self._delay_s * 2)
        return min(self._rng.uniform(FIRST_DELAY_S, self._delay_s), max(0.0, self._deadline - now))


def nobody_knows(last: BaseException | None, topology: str, shown: str) -> BaseException:
    """Return what it means that nobody said where things are, by the last of those who were asked."""
    if isinstance(last, ServerUnsuitable):
        return last
    if isinstance(last, rx.ResponseError):  # it is there, and is not what the URL says
        return ServerUnsuitable(f"{shown} does not answer as a {topology}: {reason(last)}")
    failed = ConnectFailed()
    failed.__cause__ = last
    return failed


def redirection(exc: rx.AskError) -> Address | None:
    """Return where a MOVED or ASK points; None from a server that does not know its own name."""
    found: Any = exc
    return Address(str(found.host), int(found.port)) if found.host else None


def read_with(what: str, read: Callable[..., T], *reply: Any) -> T:
    """Read a reply. Raises ScriptFailed where a value is not what redjob writes: a damaged key."""
    try:
        return read(*reply)
    except (ValueError, TypeError, LookupError, AttributeError) as exc:
        raise ScriptFailed(what, f"an unreadable value: {reason(exc)}") from exc


def note(routes: Routes, exc: BaseException) -> None:
    """Tell the routes what an error says of where things are. Raises ServerUnsuitable for a wrong URL."""
    if isinstance(exc, rx.MovedError):
        address = redirection(exc)
        if address is None:
            routes.failed()
        else:
            routes.moved(int(exc.slot_id), address)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    elif isinstance(exc, _ELSEWHERE):
        routes.failed()


def replicas_unsure(exc: rx.ResponseError) -> Exception:
    """Return what an error of WAIT means: its server has become a replica after the call.

    Then what the call did may be gone: it is unknown, and to be asked at the new primary.
    """
    return exc if isinstance(exc, _UNSUITABLE) else rx.ConnectionError(f"WAIT: {reason(exc)}")


def raise_first(replies: Sequence[Any]) -> None:
    """Raise the first error among replies."""
    for reply in replies:
        if isinstance(reply, rx.ResponseError):
            raise reply


def reason(exc: BaseException) -> str:
    """Return one line that names the cause, never a URL or a payload."""
    cause = exc.__cause__ if isinstance(exc, ConnectFailed) and exc.__cause__ else exc
    return f"{type(cause).__name__}: {str(cause).splitlines()[0][:200] if str(cause) else ''}"


def _is_refused(exc: BaseException) -> bool:
    if isinstance(exc, ConnectFailed):
        return not isinstance(exc.__cause__, _UNSUITABLE)
    if isinstance(exc, _REFUSED):
        return True
    text = str(exc)
    return isinstance(exc, rx.ResponseError) and any(word in text for word in _REFUSED_WORDS)


def _final(what: str, exc: rx.ResponseError) -> RedjobError:
    if isinstance(exc, rx.OutOfMemoryError) or "OOM" in str(exc):
        return StoreFull()
    if isinstance(exc, rx.NoPermissionError):
        return ServerUnsuitable(f"the Redis user may not do this: {reason(exc)}")
    return ScriptFailed(what, reason(exc))


def connect_error(exc: BaseException, shown: str) -> BaseException:
    """Return what a failed connection means: a ServerUnsuitable where trying again mends nothing."""
    if isinstance(exc, _UNSUITABLE):
        return ServerUnsuitable(f"{shown} refuses these credentials: {reason(exc)}")
    if "CERTIFICATE_VERIFY_FAILED" in str(exc):
        return ServerUnsuitable(
            f"{shown} has a certificate that is not trusted: {reason(exc)}; name its authority by "
            "ssl_ca_certs=/path/to/ca.pem in the URL"
        )
    failed = ConnectFailed()
    failed.__cause__ = exc
    return failed
