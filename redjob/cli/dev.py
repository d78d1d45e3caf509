"""`redjob dev`: everything in one command, on a server of its own or on the user's."""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from pathlib import Path

import click

from redjob.cli.options import connection_options, example, json_option, setting
from redjob.cli.output import print_json
from redjob.cli.parent import environment_of, run_until_signal
from redjob.cli.root import WRONG_USE
from redjob.config import Connection
from redjob.dev import Child, ChildSpec, Say, WrongUse
from redjob.embedded import EmbeddedServer, ServerStartFailed
from redjob.store.settings import redact

# Fixed, so that a program of the user's finds the server again; 10000 above Redis' own.
_PORT = 16379
_LOOK_EVERY_S = 1.0
_DRAIN_S = 35.0  # a worker's own grace is 30 s


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
    help="Where the server that dev starts keeps its data.",
)
@click.option("--port", type=int, default=_PORT, show_default=True, help="Of that server.")
@json_option
@connection_options
def dev(
    connection: Connection,
    /,
    *,
    app: str | None,
    data: Path,
    port: int,
    as_json: bool,
    **passed_on: str | int | None,
) -> None:
    """Run scheduler, sweeper and worker of an app; without one, only the first two.

    It starts a Valkey server of its own (append-only file on), unless --redis-url or REDJOB_REDIS_URL
    is given. Ctrl-C stops everything and lets running jobs end; a second one does not wait.
    """
    context = click.get_current_context()
    own = context.get_parameter_source("redis_url") is click.core.ParameterSource.DEFAULT
    say = _say_json if as_json else _say
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer(data, port=port)) if own else None
        url = connection.redis_url if server is None else server.url
        shown = redact(url)
        say("dev", f"Redis is {shown}; for other programs: REDJOB_REDIS_URL={shown}")
        children = [
            Child(spec, say) for spec in _specs(app, environment_of(connection, url), passed_on)
        ]
        try:
            code = asyncio.run(_run(children, server, say))
        except WrongUse:
            code = WRONG_USE  # the child has told why
    context.exit(code)


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


async def _run(children: list[Child], server: EmbeddedServer | None, say: Say) -> int:
    watching = asyncio.create_task(_keep_up(server, say)) if server is not None else None
    try:
        return await run_until_signal(children)
    finally:
        if watching is not None:
            watching.cancel()


async def _keep_up(server: EmbeddedServer, say: Say) -> None:
    """Start the server again when it has crashed; its port and its data stay."""
    while True:
        await asyncio.sleep(_LOOK_EVERY_S)
        if not server.running:
            say("dev", "the server has ended, starts again")
            try:
                server.start()  # not in a thread: it is one thread's, and this one may have to stop it
            except ServerStartFailed as exc:
                say("dev", str(exc))


def _say(name: str, line: str) -> None:
    sys.stdout.write(f"{name:<9} | {line}\n")
    sys.stdout.flush()


def _say_json(name: str, line: str) -> None:
    print_json({"name": name, "line": line})
    sys.stdout.flush()
