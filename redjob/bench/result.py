"""The row that a benchmark answers with, and how runs are compared."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Percentiles of a latency, ms."""

    p50: float
    p95: float
    p99: float
    max: float


class Tail(msgspec.Struct, frozen=True, kw_only=True):
    """The slow end of a latency, ms."""

    p99: float
    max: float


class Middle(msgspec.Struct, frozen=True, kw_only=True):
    """The middle and the worst of a latency, ms."""

    p50: float
    max: float


class Row(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One benchmark's figures; what does not apply is left out.

    `floor_ratio` compares with the bare commands in the same run, more is better and 1 is as good.
    `valid` is False when no run was quiet enough.
    """

    bench: str
    server: str
    jobs: int
    per_s: int | None = None
    seconds: float | None = None
    jobs_per_s: int | None = None
    redis_us_per_job: float | None = None
    redis_cpu_us_per_job: float | None = None
    worker_cpu_us_per_job: float | None = None
    scheduler_cpu_us_per_job: float | None = None
    client_cpu_us_per_job: float | None = None
    lateness_ms: Spread | None = None
    takeover_ms: Middle | None = None
    kills: int | None = None
    void_kills: int | None = None
    probe_ms: Tail | None = None
    ping_ms: Tail | None = None
    early: int | None = None
    lost: int | None = None
    duplicated: int | None = None
    bytes_per_job: int | None = None
    floor_per_s: int | None = None
    floor_bytes_per_job: int | None = None
    floor_ratio: float | None = None
    one_by_one_jobs_per_s: int | None = None
    one_by_one_bare_per_s: int | None = None
    one_by_one_ratio: float | None = None
    batch: int | None = None
    script_us: dict[str, float] | None = None
    cpu_us: dict[str, float] | None = None
    client_us: dict[str, float] | None = None
    redis_ratio: float | None = None
    client_ratio: float | None = None
    split_percent: float | None = None
    jobs_split_percent: float | None = None
    jobs_per_call: dict[str, float] | None = None
    workers: int | None = None
    concurrency: int | None = None
    note: str | None = None
    runs: int = 0
    void_runs: int = 0
    valid: bool = True


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below or at which this share (0 to 1) of an ordered list lies: nearest rank."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(values_ms: Sequence[float]) -> Spread | None:
    """Percentiles of values, None of none."""
    if not values_ms:
        return None
    ordered = sorted(values_ms)
    p50, p95, p99, most = (round(percentile(ordered, share), 2) for share in (0.5, 0.95, 0.99, 1))
    return Spread(p50=p50, p95=p95, p99=p99, max=most)


def tail(values_ms: Sequence[float]) -> Tail | None:
    """The slow end of values, None of none."""
    found = spread(values_ms)
    return None if found is None else Tail(p99=found.p99, max=found.max)


def middle(values_ms: Sequence[float]) -> Middle | None:
    """The middle and the worst of values, None of none."""
    found = spread(values_ms)
    return None if found is None else Middle(p50=found.p50, max=found.max)
