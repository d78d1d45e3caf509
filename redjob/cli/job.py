"""`redjob job`: look at one job and change it."""

from __future__ import annotations

from datetime import datetime, timedelta

import click
import msgspec

from redjob.calls.overview import partition_facts, queue_counts, workers_seen
from redjob.cli.namespace_checks import present_of
from redjob.cli.options import (
    client_of,
    connection_options,
    example,
    json_option,
    moment_of,
    store_of,
    when_options,
)
from redjob.cli.output import moment, print_fields, print_json
from redjob.cli.why import Around, why_not_running
from redjob.config import Connection
from redjob.ids import slot_of
from redjob.model import JobInfo
from redjob.store.facts import facts_query
from redjob.store.sync import SyncStore


@click.group(epilog=example("redjob job show 019a2b3c-…-1f2e"))
def job() -> None:
    """Look at one job, or change it."""


@job.command(epilog=example("redjob job show 019a2b3c-…-1f2e --json"))
@click.argument("job_id")
@json_option
@connection_options
def show(connection: Connection, /, *, job_id: str, as_json: bool) -> None:
    """Show all that is known of a job."""
    info = client_of(connection).info(job_id)
    if as_json:
        print_json(info)
    else:
        print_fields(msgspec.structs.asdict(info))


@job.command(epilog=example("redjob job cancel 019a2b3c-…-1f2e"))
@click.argument("job_id")
@json_option
@connection_options
def cancel(connection: Connection, /, *, job_id: str, as_json: bool) -> None:
    """Cancel a job; a running one is asked to stop."""
    came_to = client_of(connection).cancel(job_id)
    _tell(as_json, {"id": job_id, "cancel": str(came_to)}, f"{job_id} {came_to}")


@job.command(epilog=example("redjob job reschedule 019a2b3c-…-1f2e --in 15m"))
@click.argument("job_id")
@when_options
@json_option
@connection_options
def reschedule(
    connection: Connection,
    /,
    *,
    job_id: str,
    run_at: datetime | None,
    run_in: timedelta | None,
    as_json: bool,
) -> None:
    """Give a scheduled job another time."""
    client, store = client_of(connection), store_of(connection)
    if run_at is None and run_in is None:
        raise click.UsageError("pass --at or --in")
    store.query(facts_query())  # the first answer tells the server's clock
    when = moment_of(run_at, run_in, store.now_ms())
    assert when is not None, "one of the two was given"
    client.reschedule(job_id, when)
    run_at_ms = round(when.timestamp() * 1000)
    _tell(
        as_json, {"id": job_id, "run_at_ms": run_at_ms}, f"{job_id} is due at {moment(run_at_ms)}"
    )


@job.command(epilog=example("redjob job replay 019a2b3c-…-1f2e"))
@click.argument("job_id")
@json_option
@connection_options
def replay(connection: Connection, /, *, job_id: str, as_json: bool) -> None:
    """Run a dead job again, its failures and crashes counted anew."""
    client_of(connection).replay(job_id)
    _tell(as_json, {"id": job_id, "replayed": True}, f"{job_id} is due now")


@job.command(epilog=example("redjob job why 019a2b3c-…-1f2e"))
@click.argument("job_id")
@json_option
@connection_options
def why(connection: Connection, /, *, job_id: str, as_json: bool) -> None:
    """Say why a job does not run (yet)."""
    info = client_of(connection).info(job_id)
    reason = why_not_running(info, _around(store_of(connection), info))
    _tell(as_json, {"id": job_id, "state": str(info.state), "why": reason}, reason)


def _around(store: SyncStore, info: JobInfo) -> Around:
    part = store.keys.of_slot(slot_of(info.id))
    server = store.query(facts_query(part))
    facts = store.query(partition_facts(part))
    there = present_of(store)
    counts = store.query(queue_counts(part, info.queue)) if info.queue else None
    return Around(
        now_ms=store.now_ms(part),
        partition=part.index,
        owner=there.owners.get(part.index),
        checked=facts is not None and facts.run_id == server.run_id,
        sweeper_seen_ms=facts.sweeper_seen_ms if facts else None,
        waiting=counts.dispatched if counts else 0,
        paused=bool(counts and counts.paused),
        workers=store.query(workers_seen(store.namespace)),
    )


def _tell(as_json: bool, told: dict[str, object], text: str) -> None:
    if as_json:
        print_json(told)
    else:
        click.echo(text)
