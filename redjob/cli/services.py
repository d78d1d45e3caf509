"""`redjob scheduler` and `redjob sweeper`."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

import click

from redjob.cli.logs import LEVELS, logs_json, set_up_logging
from redjob.cli.options import connection_options, example, setting
from redjob.cli.parent import environment_of, run_until_signal
from redjob.cli.root import WRONG_USE
from redjob.cli.service import end_with_stdin, place_of, run_service, run_until
from redjob.clock import SystemClock
from redjob.config import Connection, SchedulerConfig, SweeperConfig
from redjob.dev import Child, ChildSpec, WrongUse
from redjob.store.aio import AsyncStore

P = ParamSpec("P")
R = TypeVar("R")


def service_options(command: Callable[P, R]) -> Callable[P, R]:
    """Give a command what every service has, and set its process up accordingly."""

    @setting("log_level", "Least level that is logged.", type=click.Choice(LEVELS), default="info")
    @click.option("--json", "as_json", is_flag=True, help="Log JSON, one object a line.")
    @click.option("--exit-with-stdin", is_flag=True, hidden=True)
    @wraps(command)
    def with_process(*args: P.args, **kwargs: P.kwargs) -> R:
        named = cast("dict[str, Any]", kwargs)
        set_up_logging(named.pop("log_level"), as_json=named.pop("as_json"))
        if named.pop("exit_with_stdin"):
            end_with_stdin(named.get("stop_grace_s", 0.0), SystemClock())
        return command(*args, **kwargs)

    return with_process


@click.command(epilog=example("redjob scheduler --redis-url redis://localhost:6379/0"))
@setting("depth_limit", "Entries a stream may hold: a number or none.", default="10000")
@setting("grace_ms", "Time for workers to be heard after a restart.", type=int, default=30_000)
@setting("procs", "Processes, each with its share.", type=click.IntRange(1, 64), default=1)
@service_options
@connection_options
def scheduler(
    connection: Connection,
    /,
    *,
    depth_limit: str,
    grace_ms: int,
    procs: int,
) -> None:
    """Own partitions and fire jobs on time; several share the work and stand in for each other."""
    from redjob.scheduler import SchedulerNode

    config = SchedulerConfig(depth_limit=depth_limit, grace_ms=grace_ms)
    if procs > 1:
        _run_procs(connection, procs, depth_limit=depth_limit, grace_ms=grace_ms)
        return

    async def serve(store: AsyncStore, stop: asyncio.Event) -> None:
        await run_until(stop, SchedulerNode(store, config).run())

    run_service("scheduler", place_of(connection), serve)


def _run_procs(connection: Connection, procs: int, **options: str | int) -> None:
    """Run that many schedulers under this process, which starts again what ends by itself."""
    context = click.get_current_context()
    arguments = ["scheduler", *(f"--{name.replace('_', '-')}={options[name]}" for name in options)]
    arguments.append(f"--log-level={logging.getLevelName(logging.getLogger().level).lower()}")
    if logs_json():
        arguments.append("--json")
    environment = {**environment_of(connection, connection.redis_url), "REDJOB_PROCS": "1"}

    def say(name: str, line: str) -> None:
        print(line if line.startswith(("ts=", "{")) else f"{name}: {line}", file=sys.stderr)

    children = [
        Child(ChildSpec(f"scheduler-{number}", arguments, environment), say)
        for number in range(procs)
    ]
    try:
        code = asyncio.run(run_until_signal(children))
    except WrongUse:
        code = WRONG_USE  # the child has told why
    context.exit(code)


@click.command(epilog=example("redjob sweeper --redis-url redis://localhost:6379/0"))
@setting("lease_s", "The workers' lease: the grace after a silence.", type=float, default=30.0)
@setting("never_begun_s", "Given to a consumer and not begun.", type=float, default=60.0)
@setting("overdue_s", "Due and fired by no owner.", type=float, default=1.0)
@setting("scan_every_s", "How often all places are compared.", type=float, default=30.0)
@setting("dead_keep_s", "How long dead jobs are kept.", type=float, default=30 * 86400.0)
@service_options
@connection_options
def sweeper(connection: Connection, /, **times: float) -> None:
    """End what dead workers left behind, and mend what no other process would."""
    from redjob.sweeper import SweeperNode

    config = SweeperConfig(**cast("Any", times))

    async def serve(store: AsyncStore, stop: asyncio.Event) -> None:
        await run_until(stop, SweeperNode(store, config).run())

    run_service("sweeper", place_of(connection), serve)
