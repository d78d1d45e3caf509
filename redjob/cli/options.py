"""Options that commands share: one name in Python, command line and environment; under every command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import click

from redjob.client import Client
from redjob.config import DEFAULT_NAMESPACE, DEFAULT_SCHEMA, DEFAULT_URL, PREFIX, Connection
from redjob.store.settings import settings_from_url
from redjob.store.sync import SyncStore

P = ParamSpec("P")
R = TypeVar("R")

# A person waits for the answer: long enough for a busy server, short enough to be told.
DEADLINE_S = 5.0
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def example(command: str) -> str:
    """The end of a command's help."""
    return f"\b\nExample:\n  {command}"


def setting(
    name: str, text: str, *, short: str = "", **options: object
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """An option for one field of the settings: `lease_s` is --lease-s and REDJOB_LEASE_S."""
    flag = "--" + name.replace("_", "-")
    return click.option(
        *([short] if short else []),
        flag,
        name,
        envvar=PREFIX + name.upper(),
        help=text,
        show_envvar=True,
        show_default=options.get("default") is not None,
        **cast("Any", options),
    )


def connection_options(
    command: Callable[Concatenate[Connection, P], R],
) -> Callable[P, R]:
    """Give a command the options that say where its namespace is, as a `Connection`."""

    @setting("redis_url", "Where Redis or Valkey is.", default=DEFAULT_URL, metavar="URL")
    @setting("namespace", "Prefix of every key.", default=DEFAULT_NAMESPACE, metavar="NAME")
    @setting("partitions", "How many partitions; must be what is stored.", type=int, default=None)
    @setting("allow_eviction", "Run on a server that may delete jobs.", is_flag=True, default=False)
    @wraps(command)
    def with_connection(*args: P.args, **kwargs: P.kwargs) -> R:
        named: dict[str, Any] = {
            name: kwargs.pop(name)
            for name in ("redis_url", "namespace", "partitions", "allow_eviction")
        }
        return command(Connection(**named), *args, **kwargs)

    return with_connection


def postgres_options(
    command: Callable[Concatenate[Connection, P], R],
) -> Callable[Concatenate[Connection, P], R]:
    """Add to a command's connection where Postgres is; stands under `connection_options`.

    For what keeps the journal and for `redjob migrate`: clients and workers never connect to it.
    """

    @setting("postgres_url", "Where Postgres is; without one Redis keeps all.", metavar="URL")
    @setting("postgres_schema", "Schema of its tables.", default=DEFAULT_SCHEMA, metavar="NAME")
    @wraps(command)
    def with_postgres(connection: Connection, /, *args: P.args, **kwargs: P.kwargs) -> R:
        named: dict[str, Any] = {
            name: kwargs.pop(name) for name in ("postgres_url", "postgres_schema")
        }
        return command(replace(connection, **named), *args, **kwargs)

    return with_postgres


def json_option(command: Callable[P, R]) -> Callable[P, R]:
    """Give a command --json, as the argument `as_json`."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print JSON: one object, or one a line."
    )(command)


def client_of(connection: Connection) -> Client:
    """A client for one command."""
    return Client(
        connection.redis_url,
        namespace=connection.namespace,
        partitions=connection.partitions,
        deadline_s=DEADLINE_S,
    )


def store_of(connection: Connection) -> SyncStore:
    """A store for what the client does not offer."""
    return SyncStore(
        settings_from_url(connection.redis_url, deadline_s=DEADLINE_S),
        connection.namespace,
        partitions=connection.partitions,
    )


def span(text: str) -> timedelta:
    """Read a span of time: seconds, or a number with a unit (500ms, 90s, 15m, 6h, 7d, 2w).

    Raises click.BadParameter.
    """
    unit_s = _UNITS_S.get(text[-1:])
    try:
        if text.endswith("ms"):
            return timedelta(milliseconds=float(text[:-2]))
        return timedelta(seconds=float(text[:-1]) * unit_s if unit_s else float(text))
    except (ValueError, OverflowError) as exc:
        message = f"{text!r} is not a span of time; use 90s, 15m, 6h or 7d"
        raise click.BadParameter(message) from exc


def moment(text: str) -> datetime:
    """Read a moment in ISO 8601 with its offset: 2026-09-25T14:00:00+02:00, or Z for UTC.

    Raises click.BadParameter.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError as exc:
        message = f"{text!r} is not ISO 8601, as in 2026-09-25T14:00:00Z"
        raise click.BadParameter(message) from exc
    if found.utcoffset() is None:
        raise click.BadParameter(f"{text!r} has no time zone; add Z or an offset like +02:00")
    return found


def when_options(command: Callable[P, R]) -> Callable[P, R]:
    """Give a command --at and --in, as the arguments `run_at` and `run_in`."""
    at = click.option("--at", "run_at", type=moment, help="When, in ISO 8601 with offset or Z.")
    after = click.option("--in", "run_in", type=span, help="After how long: 90s, 15m, 6h, 7d.")
    return at(after(command))


def moment_of(run_at: datetime | None, run_in: timedelta | None, now_ms: int) -> datetime | None:
    """The moment that --at or --in names, None for neither; `now_ms` is the server's clock."""
    if run_at is not None and run_in is not None:
        raise click.UsageError("--at and --in exclude each other")
    if run_in is None:
        return run_at
    return datetime.fromtimestamp(now_ms / 1000, UTC) + run_in
