"""`redjob dev`: everything in one command, on a server of its own or on the user's."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import click

from redjob.cli.options import connection_options, example, setting
from redjob.cli.root import WRONG_USE
from redjob.config import Connection
from redjob.dev import Child, ChildSpec, WrongUse, run_children
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
@connection_options
def dev(
    connection: Connection,
    /,
    *,
    app: str | None,
    queues: str | None,
    concurrency: int,
    log_level: str,
    data: Path,
    port: int,
) -> None:
    """Run scheduler, sweeper and worker of an app; without one, only the first two.

    It starts a Valkey server of its own (append-only file on), unless --redis-url or REDJOB_REDIS_URL
    is given. Ctrl-C stops everything.
    """
    context = click.get_current_context()
    own = context.get_parameter_source("redis_url") is click.core.ParameterSource.DEFAULT
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer(data, port=port)) if own else None
        url = connection.redis_url if server is None else server.url
        environment = {"REDJOB_REDIS_URL": url, "REDJOB_NAMESPACE": connection.namespace}
        common = ["--log-level", log_level]
        if connection.partitions is not None:
            environment["REDJOB_PARTITIONS"] = str(connection.partitions)
        if connection.allow_eviction:
            environment["REDJOB_ALLOW_EVICTION"] = "1"
        specs = [
            ChildSpec("scheduler", ["scheduler", *common], environment),
            ChildSpec("sweeper", ["sweeper", *common], environment),
        ]
        if app is not None:
            worker = ["worker", app, "--concurrency", str(concurrency), *common]
            if queues is not None:
                worker += ["--queues", queues]
            specs.append(ChildSpec("worker", worker, environment, _DRAIN_S))
        _say("dev", f"Redis is {redact(url)}; for other programs: REDJOB_REDIS_URL={redact(url)}")
        try:
            asyncio.run(_run(specs, server))
        except WrongUse:
            context.exit(WRONG_USE)  # the child has told why


async def _run(specs: list[ChildSpec], server: EmbeddedServer | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    watching = asyncio.create_task(_keep_up(server)) if server is not None else None
    try:
        await run_children([Child(spec, _say) for spec in specs], stop)
    finally:
        if watching is not None:
            watching.cancel()


async def _keep_up(server: EmbeddedServer) -> None:
    """Start the server again when it has crashed; its port and its data stay."""
    while True:
        await asyncio.sleep(_LOOK_EVERY_S)
        if not server.running:
            _say("dev", "the server has ended, starts again")
            try:
                await asyncio.to_thread(server.start)
            except ServerStartFailed as exc:
                _say("dev", str(exc))


def _say(name: str, line: str) -> None:
    sys.stdout.write(f"{name:<9} | {line}\n")
    sys.stdout.flush()
