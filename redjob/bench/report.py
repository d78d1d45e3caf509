"""Rows for people: lines on a terminal, and the table in the documentation."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

import msgspec

from redjob.bench.result import Middle, Row, Spread, Tail

BEGIN, END = "<!-- figures -->", "<!-- /figures -->"
_HEAD = ("bench", "server", "jobs")


def table(rows: Sequence[Row]) -> str:
    """A line for each row: its name, then every figure that it has."""
    return "\n".join(_line(row) for row in rows)


def write_figures(file: Path, rows: Sequence[Row]) -> None:
    """Replace what stands between the markers of a Markdown file. Raises ValueError without them."""
    text = file.read_text(encoding="utf-8")
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"{file} lacks {BEGIN} or {END}")
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    lines = [
        f"Measured on {machine}.",
        "",
        "| bench | server | jobs | figures |",
        "| --- | --- | ---: | --- |",
        *[f"| {row.bench} | {row.server} | {row.jobs:,} | {_figures(row, '; ')} |" for row in rows],
    ]
    body = "\n".join(lines)
    file.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}", encoding="utf-8")


def _line(row: Row) -> str:
    return f"{row.bench}: {row.jobs} jobs on {row.server}\n  {_figures(row, chr(10) + '  ')}"


def _figures(row: Row, between: str) -> str:
    found = {
        name: value for name, value in msgspec.structs.asdict(row).items() if value is not None
    }
    shown = [
        f"{name} {_told(value)}"
        for name, value in found.items()
        if name not in _HEAD and not (name in {"void_runs", "valid"} and _usual(name, value))
    ]
    return between.join(shown)


def _usual(name: str, value: object) -> bool:
    return value == 0 if name == "void_runs" else value is True


def _told(value: object) -> str:
    if isinstance(value, Spread | Tail | Middle):
        parts = msgspec.structs.asdict(value)
        return " ".join(f"{name} {part:g}" for name, part in parts.items())
    if isinstance(value, dict):
        return " ".join(f"{name} {part:g}" for name, part in value.items())  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else str(value)
