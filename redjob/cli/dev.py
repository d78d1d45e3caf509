"""`redjob dev`: everything in one command, on servers of its own or on the user's."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import click

from redjob.cli.options import connection_options, example, json_option, postgres_options, setting
from redjob.cli.output import print_json
from redjob.cli.parent import environment_of, run_until_signal
from redjob.cli.root import DONE, WRONG_USE
from redjob.config import Connection
from redjob.dev import Child, ChildSpec, Say, WrongUse, keep_up, run_once
from redjob.embedded import EmbeddedPostgres, EmbeddedServer, ServerProcess, all_postgres
from redjob.store.settings import redact

# Fixed, so that a program of the user's finds the server again; 10000 above Redis' own.
_PORT = 16379
_DRAIN_S = 35.0  # a worker's own grace is 30 s
# Beside a Redis that dev starts, where there is a Postgres to start.
_POSTGRES_BY_DEFAULT = False


@click.command(epilog=example("redjob dev myapp:app"))
@click.argument("app", required=False, metavar="[MODULE:APP]")
@setting("queues", "Queues of the worker, comma separated; by default those of its tasks.")
@setting("concurrency", "Jobs that the worker runs at once.", type=int, default=16)
@setting("log_level", "Least level that is logged.", default="info")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".redjob"),
    show_default=True,
    help="Where the servers that dev starts keep their data.",
)
@click.option("--port", type=int, default=_PORT, show_default=True, help="Of its Valkey.")
@click.option("--postgres/--no-postgres", default=None, help="Start a Postgres too, or use none.")
@json_option
@connection_options
@postgres_options
def dev(
    connection: Connection,
    /,
    *,
    app: str | None,
    data: Path,
    port: int,
    postgres: bool | None,
    as_json: bool,
    **passed_on: str | int | None,
) -> None:
    """Run scheduler, sweeper and worker of an app; without one, only the first two.

    It starts a Valkey server of its own (append-only file on), unless --redis-url or REDJOB_REDIS_URL
    is given; --postgres-url, if given, is used. Ctrl-C stops everything and lets running jobs end; a
    second one does not wait.
    """
    context = click.get_current_context()
    own = context.get_parameter_source("redis_url") is click.core.ParameterSource.DEFAULT
    say = _say_json if as_json else _say
    servers: dict[str, ServerProcess] = {}
    if own:
        servers["Redis"] = EmbeddedServer(data, port=port)
    if postgres is False:
        connection = replace(connection, postgres_url=None)
    elif connection.postgres_url is None and starts_postgres(own, postgres):
        servers["Postgres"] = EmbeddedPostgres(data / "postgres")
    with ExitStack() as stack:
        urls = {name: stack.enter_context(server).url for name, server in servers.items()}
        connection = replace(
            connection,
            redis_url=urls.get("Redis", connection.redis_url),
            postgres_url=urls.get("Postgres", connection.postgres_url),
        )
        _tell(connection, servers, say)
        code = _run(connection, servers, say, app, passed_on)
    context.exit(code)


def starts_postgres(own_redis: bool, wanted: bool | None) -> bool:
    """Whether dev starts a Postgres; `wanted` is None where nobody has said."""
    if wanted is not None:
        return wanted
    # Beside a Redis of the user's it must be asked for: a namespace that has once been kept in
    # Postgres is not served without it.
    able = importlib.util.find_spec("asyncpg") is not None and bool(all_postgres())
    return _POSTGRES_BY_DEFAULT and own_redis and able


def _tell(connection: Connection, servers: dict[str, ServerProcess], say: Say) -> None:
    shown = redact(connection.redis_url)
    say("dev", f"Redis is {shown}; for other programs: REDJOB_REDIS_URL={shown}")
    if connection.postgres_url is not None:
        own = servers.get("Postgres")
        secret = f"; its password is in {own.directory / 'password'}" if own else ""
        say("dev", f"Postgres is {redact(connection.postgres_url)}{secret}")


def _environment(connection: Connection) -> dict[str, str]:
    """What the children read; a Postgres that the user's environment names may be one not to use."""
    return {"REDJOB_POSTGRES_URL": "", **environment_of(connection, connection.redis_url)}


def _migrate(environment: dict[str, str], say: Say) -> int:
    """Give dev's own Postgres the tables of this redjob; return the exit code."""
    context = click.get_current_context()
    root = context.find_root().command
    if not isinstance(root, click.Group) or "migrate" not in root.list_commands(context):
        return DONE
    return run_once(ChildSpec("migrate", ["migrate"], environment), say)


def _run(
    connection: Connection,
    servers: dict[str, ServerProcess],
    say: Say,
    app: str | None,
    passed_on: dict[str, str | int | None],
) -> int:
    environment = _environment(connection)
    if "Postgres" in servers:
        code = _migrate(environment, say)
        if code != DONE:
            return code
    children = [Child(spec, say) for spec in _specs(app, environment, passed_on)]
    try:
        return asyncio.run(_watch(children, servers, say))
    except WrongUse:
        return WRONG_USE  # the child has told why


def _specs(
    app: str | None, environment: dict[str, str], passed_on: dict[str, str | int | None]
) -> list[ChildSpec]:
    common = ["--log-level", str(passed_on["log_level"])]
    specs = [
        ChildSpec("scheduler", ["scheduler", *common], environment),
        ChildSpec("sweeper", ["sweeper", *common], environment),
    ]
    if app is not None:
        worker = ["worker", app, "--concurrency", str(passed_on["concurrency"]), *common]
        if passed_on["queues"] is not None:
            worker += ["--queues", str(passed_on["queues"])]
        specs.append(ChildSpec("worker", worker, environment, _DRAIN_S))
    return specs


async def _watch(children: list[Child], servers: dict[str, ServerProcess], say: Say) -> int:
    watching = asyncio.create_task(keep_up(servers, say))
    try:
        return await run_until_signal(children)
    finally:
        watching.cancel()


def _say(name: str, line: str) -> None:
    sys.stdout.write(f"{name:<9} | {line}\n")
    sys.stdout.flush()


def _say_json(name: str, line: str) -> None:
    print_json({"name": name, "line": line})
    sys.stdout.flush()
