"""What `redjob doctor` finds of the servers: pure functions of what each primary said; under doctor."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from redjob.clock import Clock
from redjob.errors import ServerUnsuitable, StoreUnavailable
from redjob.store.facts import MIN_REDIS, MIN_VALKEY, ServerFacts, parse_info, server_facts
from redjob.store.routes import HOME, Address
from redjob.store.servers import Refusal, Servers

Status = Literal["ok", "warn", "fail"]
Finding = tuple[Status, str]
_SEVERITY: dict[Status, int] = {"ok": 0, "warn": 1, "fail": 2}

_SKEW_WARN_MS, _SKEW_FAIL_MS = 1000, 5000
_LISTPACK_BYTES = 1024  # redjob's small hash values stay in the compact form up to here
_SETTINGS = (
    "hash-max-listpack-value", "cluster-node-timeout", "cluster-require-full-coverage",
    "min-replicas-to-write",
)  # fmt: skip
NOT_TOLD: Finding = ("ok", "not told by this server (no CONFIG)")


class Primary(NamedTuple):
    """What one primary says. `ahead_ms` is its clock less this machine's; `settings` None: not told."""

    address: Address
    facts: ServerFacts
    used: int
    ahead_ms: int
    settings: Mapping[str, str] | None

    @property
    def name(self) -> str:
        """How people are told which one it is."""
        return "the server" if self.address == HOME else str(self.address)


def examine(servers: Servers, address: Address, clock: Clock) -> Primary | None:
    """Ask a primary all that the checks need; None for one that does not answer.

    Raises ServerUnsuitable where the user may not even ask.
    """
    try:
        raw, told = servers.ask(address, ("INFO",), ("CONFIG", "GET", *_SETTINGS))
        before_ms = clock.wall_ms()  # connected by now
        (time,) = servers.ask(address, ("TIME",))
    except StoreUnavailable:
        return None
    for reply in (raw, time):
        if isinstance(reply, Refusal):
            raise ServerUnsuitable(f"{address} refuses to be examined: {reply.text}")
    ahead_ms = int(time[0]) * 1000 + int(time[1]) // 1000 - (before_ms + clock.wall_ms()) // 2
    info = parse_info(raw)
    settings = None
    if not isinstance(told, Refusal):
        words = [word.decode() for word in told]
        settings = dict(zip(words[::2], words[1::2], strict=True))
    return Primary(
        address, server_facts(info), int(info.get("used_memory", "0")), ahead_ms, settings
    )


def of_servers(found: Sequence[Primary], *, allow_eviction: bool) -> dict[str, Finding]:
    """Check what any server must have, each primary by itself."""
    return {
        "version": on_all(found, _version),
        "eviction": on_all(found, lambda one: _eviction(one.facts, allow=allow_eviction)),
        "appendonly": on_all(found, _appendonly),
        "maxmemory": on_all(found, _memory),
        "hash-max-listpack-value": on_all(found, _listpack),
        "clock": clock_of(found),
    }


def on_all(found: Sequence[Primary], check: Callable[[Primary], Finding]) -> Finding:
    """Make one finding of one for each primary: the worst, with the names of whom it is about."""
    each = [(one.name, check(one)) for one in found]
    worst: Status = max((finding[0] for _, finding in each), key=_SEVERITY.__getitem__)
    about: dict[str, list[str]] = {}
    for name, (status, detail) in each:
        if status == worst:
            about.setdefault(detail, []).append(name)
    if len(about) == 1 and len(*about.values()) == len(found):
        return worst, next(iter(about))
    return worst, "; ".join(f"{', '.join(names)}: {detail}" for detail, names in about.items())


def _version(one: Primary) -> Finding:
    facts = one.facts
    least = MIN_VALKEY if facts.name == "valkey" else MIN_REDIS
    if facts.version < least:
        return "fail", f"{facts.label} is too old: redjob needs Redis 7.0 or Valkey 7.2"
    return "ok", facts.label


def _eviction(facts: ServerFacts, *, allow: bool) -> Finding:
    if facts.eviction == "noeviction":
        return "ok", facts.eviction
    told = f"{facts.eviction}: the server may delete jobs; set maxmemory-policy noeviction"
    return ("warn" if allow else "fail"), told


def _appendonly(one: Primary) -> Finding:
    if one.facts.appendonly:
        return "ok", "on"
    return "warn", "off: a crash of the server loses jobs"


def _memory(one: Primary) -> Finding:
    limit = one.facts.maxmemory
    if not limit:
        return "ok", f"{one.used >> 20} MiB used, no limit but the machine's"
    share = one.used / limit
    told = f"{one.used >> 20} of {limit >> 20} MiB used ({share:.0%})"
    if share >= 1:
        return "fail", f"{told}: new jobs are refused"
    return ("warn" if share > 0.9 else "ok"), told


def _listpack(one: Primary) -> Finding:
    if one.settings is None:
        return NOT_TOLD
    value = one.settings.get("hash-max-listpack-value")
    if value is None or int(value) >= _LISTPACK_BYTES:
        return "ok", value or "no such setting"
    return "warn", f"{value}: {_LISTPACK_BYTES} saves memory where few jobs run or have failed"


def clock_of(found: Sequence[Primary]) -> Finding:
    """Compare each clock with the median of all; that of a server by itself with this machine's."""
    if len(found) == 1:
        return _skewed("the server is", found[0].ahead_ms, "")
    middle_ms = statistics.median_low(one.ahead_ms for one in found)
    farthest = max(found, key=lambda one: abs(one.ahead_ms - middle_ms))
    skew_ms = farthest.ahead_ms - middle_ms
    return _skewed(f"{farthest.name} is farthest off the median,", skew_ms, " of it")


def _skewed(who: str, skew_ms: int, than: str) -> Finding:
    told = f"{who} {abs(skew_ms)} ms {'ahead' if skew_ms >= 0 else 'behind'}{than}"
    if abs(skew_ms) > _SKEW_FAIL_MS:
        return "fail", f"{told}; synchronise the clocks"
    return ("warn" if abs(skew_ms) > _SKEW_WARN_MS else "ok"), told
