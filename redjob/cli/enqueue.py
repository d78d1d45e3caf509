"""`redjob enqueue`: accept a job of any task from a shell."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from typing import Any

import click
import msgspec

from redjob.cli.options import (
    client_of,
    connection_options,
    example,
    json_option,
    moment_of,
    span,
    when_options,
)
from redjob.cli.output import print_json
from redjob.client import Client
from redjob.config import Connection
from redjob.job import Job
from redjob.retry import Retry


@click.command(epilog=example('redjob enqueue email.send \'{"user_id": "u1"}\' -q email --in 15m'))
@click.argument("task")
@click.argument("payload", default="{}")
@click.option("-q", "--queue", default="default", show_default=True, help="Its worker pool.")
@click.option("--tenant", default="default", show_default=True, help="Whom it belongs to.")
@click.option(
    "--priority", default="normal", show_default=True, help="high, normal, low or 0 to 9."
)
@click.option("--idempotency-key", help="The same key is the same job.")
@click.option("--max-attempts", type=int, help="Tries in all when the task raises.")
@click.option("--timeout-s", type=float, help="Seconds that an attempt may take.")
@click.option("--expires-in", type=span, help="Not begun later than this after its due time.")
@click.option("--wait", "wait", type=span, help="Wait so long for the result and print it.")
@when_options
@json_option
@connection_options
def enqueue(
    connection: Connection,
    /,
    *,
    task: str,
    payload: str,
    run_at: datetime | None,
    run_in: timedelta | None,
    wait: timedelta | None,
    as_json: bool,
    **options: Any,  # noqa: ANN401 - as click has read them; the client checks each
) -> None:
    """Accept a job of TASK with PAYLOAD, a JSON object of its arguments ("-" reads it from stdin)."""
    client = client_of(connection)
    arguments = _object(sys.stdin.read() if payload == "-" else payload)
    options["priority"] = _priority(options["priority"])
    if (max_attempts := options.pop("max_attempts")) is not None:
        options["retry"] = Retry(max_attempts=max_attempts)
    chosen = {name: value for name, value in options.items() if value is not None}
    moment_of(run_at, run_in, 0)
    if run_at is not None:
        job = client.enqueue_at(run_at, task, arguments, **chosen)
    elif run_in is not None:
        job = client.enqueue_in(run_in, task, arguments, **chosen)
    else:
        job = client.enqueue(task, arguments, **chosen)
    _tell(client, job, wait, as_json=as_json)


def _tell(client: Client, job: Job, wait: timedelta | None, *, as_json: bool) -> None:
    told: dict[str, Any] = {"id": job.id, "created": job.created}
    if not as_json:
        known = "" if job.created else " (its key names this job already)"
        click.echo(job.id + known)
    if wait is not None:
        told["result"] = client.result(job.id, wait.total_seconds())
        if not as_json:
            click.echo(msgspec.json.encode(told["result"]).decode())
    if as_json:
        print_json(told)


def _object(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as exc:
        raise click.UsageError(f"PAYLOAD is not a JSON object: {exc}") from exc


def _priority(text: str) -> int | str:
    return int(text) if text.isdigit() else text
