"""`redjob worker`: run the jobs of an app."""

from __future__ import annotations

import asyncio
import re

import click

from redjob.app import Redjob
from redjob.cli.beside import Beside
from redjob.cli.loading import load_app
from redjob.cli.options import connection_options, example, setting
from redjob.cli.service import Place, run_service
from redjob.cli.services import service_options
from redjob.config import Connection, SchedulerConfig, SweeperConfig, WorkerConfig
from redjob.store.aio import AsyncStore
from redjob.store.settings import settings_from_url
from redjob.submit import DEFAULT_QUEUE
from redjob.worker.node import WorkerNode

_WEIGHTED = re.compile(r".*:\d+")


@click.command(epilog=example("redjob worker app:app -Q email,billing -c 16"))
@click.argument("app_place", metavar="MODULE:APP")
@setting(
    "queues", "Queues in their order, comma separated; by default those of its tasks.", short="-Q"
)
@setting("concurrency", "Jobs at once.", short="-c", type=int, default=16)
@setting(
    "lease_s", "A job whose worker is silent for so long starts again.", type=float, default=30.0
)
@setting("heartbeat_s", "How often it is heard; a third of the lease by default.", type=float)
@setting(
    "stop_grace_s", "Time for running jobs to end when it is stopped.", type=float, default=30.0
)
@click.option(
    "--with-scheduler", is_flag=True, help="Run scheduler and sweeper too (small set-ups)."
)
@service_options
@connection_options
def worker(
    connection: Connection,
    /,
    *,
    app_place: str,
    queues: str | None,
    with_scheduler: bool,
    heartbeat_s: float | None,
    **numbers: float,
) -> None:
    """Run jobs of the app MODULE:APP until it is stopped.

    The first SIGTERM or Ctrl-C lets running jobs end, the second ends the process at once. --redis-url,
    --namespace and --partitions win over what the app itself says, also when the environment sets them.
    """
    app = load_app(app_place)
    _move(app, connection)
    config = WorkerConfig(
        queues=_queues(queues, app),
        concurrency=int(numbers["concurrency"]),
        lease_s=numbers["lease_s"],
        heartbeat_s=numbers["lease_s"] / 3 if heartbeat_s is None else heartbeat_s,
        stop_grace_s=numbers["stop_grace_s"],
    )
    place = Place(app.settings, app.namespace, app.partitions, connection.allow_eviction)
    beside = None
    if with_scheduler:
        beside = Beside(
            place,
            SchedulerConfig(grace_ms=round(config.lease_s * 1000)),
            SweeperConfig(lease_s=config.lease_s),
        )

    async def serve(store: AsyncStore, stop: asyncio.Event) -> None:
        if beside is None:
            await _work(WorkerNode(app, config, store=store), stop)
        else:
            async with beside:
                await _work(WorkerNode(app, config, store=store), stop)

    run_service("worker", place, serve)


async def _work(node: WorkerNode, stop: asyncio.Event) -> None:
    """Run the node until it is told to stop, and let it drain."""
    running = asyncio.create_task(node.run())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
        node.stop()
        await running
    finally:
        stopping.cancel()


def _move(app: Redjob, connection: Connection) -> None:
    """Let the options that were given, here or in the environment, win over the app's own."""
    context = click.get_current_context()

    def given(name: str) -> bool:
        return context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT

    if given("redis_url"):
        app.settings = settings_from_url(connection.redis_url)
    if given("namespace"):
        app.namespace = connection.namespace
    if given("partitions"):
        app.partitions = connection.partitions


def _queues(names: str | None, app: Redjob) -> tuple[str, ...]:
    """Raises click.UsageError for weights; other bad names are refused by the config."""
    if names is None:
        found = dict.fromkeys(task.queue for task in app.tasks.values())
        return tuple(found) or (DEFAULT_QUEUE,)
    queues = tuple(name.strip() for name in names.split(","))
    for name in queues:
        if _WEIGHTED.fullmatch(name):
            message = f"-Q {name}: weights are not supported yet; leave out what follows the colon"
            raise click.UsageError(message)
    return queues
