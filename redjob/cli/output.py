"""What commands print: JSON for scripts, tables and lines for people; under every command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import click
import msgspec


def print_json(value: object) -> None:
    """Print one JSON object on a line of its own."""
    click.echo(msgspec.json.encode(value).decode())


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under their headings; columns of numbers stand to the right."""
    shown = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *shown, strict=True)]
    right = [
        bool(rows) and all(isinstance(row[index], int | float | None) for row in rows)
        for index in range(len(headings))
    ]
    for line in [list(headings), *shown]:
        cells = [
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(line, widths, right, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


def print_fields(fields: Mapping[str, object]) -> None:
    """Print what is known, a line each; times (`…_ms`) as people write them."""
    known = {name: value for name, value in fields.items() if value is not None}
    width = max(map(len, known), default=0)
    for name, value in known.items():
        text = moment(value) if name.endswith("_ms") and isinstance(value, int) else _cell(value)
        click.echo(f"{name.removesuffix('_ms').ljust(width)}  {text}")


def moment(wall_ms: int | None) -> str:
    """A time in wall ms as ISO 8601 in UTC, "" for none."""
    if wall_ms is None:
        return ""
    told = datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return told.replace("+00:00", "Z")


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return "".join(char if char.isprintable() else "�" for char in value)
    if isinstance(value, int | float):
        return str(value)
    return msgspec.json.encode(value).decode()
