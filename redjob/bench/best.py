"""Runs a benchmark until enough runs were quiet, and keeps the best of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from redjob.bench.result import Row

VOID_MS = 50.0  # a probe that waits longer says that the machine was busy with something else
_VOID_FACTOR = 2  # void runs allowed for each run asked for


class Bench(NamedTuple):
    """A benchmark: one run of it, and by which figure runs compare (the higher the better)."""

    name: str
    run: Callable[[], Row]
    score: Callable[[Row], float]


def best_of(bench: Bench, runs: int, say: Callable[[str], None]) -> Row:
    """Return the best of `runs` valid runs; of void ones if there were no others, marked so."""
    valid: list[Row] = []
    void: list[Row] = []
    while len(valid) < runs and len(void) < runs * _VOID_FACTOR:
        row = bench.run()
        quiet = row.probe_ms is None or row.probe_ms.max <= VOID_MS
        (valid if quiet else void).append(row)
        if not quiet:
            say(f"{bench.name}: void, the probe waited {row.probe_ms and row.probe_ms.max} ms")
    best = max(valid or void, key=bench.score)
    best.runs, best.void_runs, best.valid = len(valid), len(void), bool(valid)
    return best
