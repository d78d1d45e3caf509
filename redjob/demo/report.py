"""The table at the end of the demo, and its verdict."""

from __future__ import annotations

from redjob.demo.checks import Check
from redjob.demo.outcome import Outcome

_HEADINGS = ("jobs", "count", "starts", "ended", "late p50", "p99", "max ms")


def table(outcome: Outcome) -> list[str]:
    """One line per kind of jobs: how many, their starts, how they ended, how late they began."""
    rows: list[tuple[str, ...]] = [_HEADINGS]
    for kind in outcome.asked.kinds:
        jobs, late = outcome.of(kind), outcome.lateness_ms(kind)
        ended = sorted({str(info.state) for info, _ in jobs})
        rows.append(
            (
                kind.name,
                str(len(jobs)),
                str(sum(len(begun) for _, begun in jobs)),
                ", ".join(ended),
                *(_quantile(late, share) for share in (0.5, 0.99, 1.0)),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_aligned(row, widths)).rstrip() for row in rows]


def verdicts(found: list[Check]) -> list[str]:
    """One line per check."""
    return [f"  {'ok  ' if not c.found else 'FAIL'}  {c.name}" + _seen(c) for c in found]


def _seen(check: Check) -> str:
    return f" - found: {check.found}" if check.found else ""


def _aligned(row: tuple[str, ...], widths: list[int]) -> list[str]:
    text = (0, 3)  # these columns are words, the others numbers
    return [
        cell.ljust(width) if index in text else cell.rjust(width)
        for index, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]


def _quantile(ascending: list[int], share: float) -> str:
    """The least value that `share` of all do not exceed; "" of none."""
    if not ascending:
        return ""
    rank = -(-len(ascending) * share // 1)
    return str(ascending[max(0, int(rank) - 1)])
