"""Settings of every part, frozen and checked once; each has one name in Python, CLI, environment and docs.

`--redis-url` is `REDJOB_REDIS_URL` is `redis_url`. Fields in `_s` are seconds, in `_ms` milliseconds.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from redjob.errors import InvalidArgument
from redjob.names import check_name

PREFIX = "REDJOB_"
DEFAULT_URL = "redis://localhost:6379/0"
DEFAULT_NAMESPACE = "redjob"
DEFAULT_SCHEMA = "redjob"
# Needs no quotes in SQL, fits Postgres' 63 bytes, and is none of its own (`pg_…`).
_SCHEMA = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")
_POSTGRES_SCHEMES = ("postgresql://", "postgres://")


def env(name: str, environ: Mapping[str, str] | None = None) -> str | None:
    """Return the environment's value of a setting (`redis_url` → REDJOB_REDIS_URL), None if unset or empty."""
    return (os.environ if environ is None else environ).get(PREFIX + name.upper()) or None


def _positive(field_name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InvalidArgument(field_name, f"is {value}", "pass a positive number")


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Where the namespace is. `partitions` None takes what is stored (16 in a new one).

    `postgres_url` None means no Postgres: jobs live in Redis alone.
    """

    redis_url: str = DEFAULT_URL
    namespace: str = DEFAULT_NAMESPACE
    partitions: int | None = None
    allow_eviction: bool = False
    postgres_url: str | None = field(default=None, repr=False)
    postgres_schema: str = DEFAULT_SCHEMA

    def __post_init__(self) -> None:
        check_name("namespace", self.namespace)
        if self.postgres_url is not None and not self.postgres_url.startswith(_POSTGRES_SCHEMES):
            raise InvalidArgument(  # the URL is not repeated: it may hold a password
                "postgres_url",
                "is not a URL of Postgres",
                "use postgresql://user:password@host:5432/database",
            )
        if _SCHEMA.fullmatch(self.postgres_schema) is None:
            raise InvalidArgument(
                "postgres_schema",
                f"is {self.postgres_schema!r:.80}",
                "use 1 to 63 of a-z 0-9 _, no digit first, and not pg_",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """A scheduler process. Times of the lease are those of design: TTL 1 s, renewed every 0.25 s."""

    lease_ttl_ms: int = 1000
    renew_every_s: float = 0.25
    margin_ms: int = 150
    join_delay_ms: int = 2000
    lookahead_ms: int = 5000
    sweep_every_s: float = 0.1
    trim_every_s: float = 1.0
    tombstone_keep_ms: int = 60_000
    depth_limit: str = "10000"
    grace_ms: int = 30_000

    def __post_init__(self) -> None:
        if self.depth_limit != "none" and not (
            self.depth_limit.isdigit() and int(self.depth_limit) > 0
        ):
            raise InvalidArgument(
                "depth_limit", f"is {self.depth_limit!r}", "pass a positive number or none"
            )
        _positive("renew_every_s", self.renew_every_s)
        if self.renew_every_s * 1000 * 2 > self.lease_ttl_ms - self.margin_ms:
            raise InvalidArgument(
                "renew_every_s",
                "leaves no second chance before the lease ends",
                "use a quarter of the TTL",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """A worker process. `queues` in the order of preference."""

    queues: tuple[str, ...] = ("default",)
    concurrency: int = 16
    lease_s: float = 30.0
    heartbeat_s: float = 10.0
    stop_grace_s: float = 30.0
    look_every_s: float = 1.0

    def __post_init__(self) -> None:
        if not self.queues:
            raise InvalidArgument("queues", "is empty", "pass at least one, as in -Q email,billing")
        for queue in self.queues:
            check_name("queues", queue)
        for name in ("concurrency", "lease_s", "heartbeat_s", "look_every_s"):
            _positive(name, getattr(self, name))
        if self.heartbeat_s * 2 > self.lease_s:
            raise InvalidArgument(
                "heartbeat_s",
                f"is {self.heartbeat_s}, more than half of lease_s",
                "use a third of lease_s",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SweeperConfig:
    """A sweeper process. `lease_s` is the grace given to workers after a silence of the sweeper."""

    every_s: float = 1.0
    lease_s: float = 30.0
    never_begun_s: float = 60.0
    overdue_s: float = 1.0
    scan_every_s: float = 30.0
    dead_keep_s: float = 30 * 86400.0
    batch: int = 200

    def __post_init__(self) -> None:
        for name in (
            "every_s",
            "lease_s",
            "never_begun_s",
            "overdue_s",
            "scan_every_s",
            "dead_keep_s",
        ):
            _positive(name, getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a client accepts; beyond it, a clear error and nothing stored."""

    payload_bytes: int = 256 * 1024
    depth: int = 64
    horizon_s: float = field(default=10 * 366 * 86400.0)
