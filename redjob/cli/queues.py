"""`redjob queues`: what each queue holds, over all partitions."""

from __future__ import annotations

from collections import Counter, defaultdict

import click

from redjob.calls.overview import QueueCounts, queue_counts
from redjob.calls.reads import queue_names
from redjob.calls.sweep_reads import origins, page_of
from redjob.cli.options import connection_options, example, json_option, store_of
from redjob.cli.output import moment, print_json, print_table
from redjob.config import Connection
from redjob.keys import PartitionKeys
from redjob.store.sync import SyncStore

_PAGE = 500


@click.group(epilog=example("redjob queues list"))
def queues() -> None:
    """Look at queues."""


@queues.command(name="list", epilog=example("redjob queues list --json"))
@json_option
@connection_options
def list_(connection: Connection, /, *, as_json: bool) -> None:
    """Count the jobs of every queue: scheduled, ready, dispatched, running and dead."""
    store = store_of(connection)
    counts: defaultdict[str, list[QueueCounts]] = defaultdict(list)
    running: Counter[str] = Counter()
    for part in store.keys.parts:
        for queue in store.query(queue_names(part)):
            counts[queue].append(store.query(queue_counts(part, queue)))
        running.update(_running(store, part))
    rows = [_total(queue, counts[queue], running[queue]) for queue in sorted(counts)]
    if as_json:
        for row in rows:
            print_json(row)
        return
    shown = [
        [moment(value) if name == "next_due_ms" else value for name, value in row.items()]  # type: ignore[arg-type]
        for row in rows
    ]
    headings = [name.removesuffix("_ms") for name in rows[0]] if rows else []
    print_table(headings, shown)


def _total(queue: str, parts: list[QueueCounts], running: int) -> dict[str, object]:
    dues = [part.next_due_ms for part in parts if part.next_due_ms is not None]
    return {
        "queue": queue,
        "scheduled": sum(part.scheduled for part in parts),
        "ready": sum(part.ready + part.held for part in parts),
        "dispatched": sum(part.dispatched for part in parts),
        "running": running,
        "dead": sum(part.dead for part in parts),
        "next_due_ms": min(dues, default=None),
        "paused": any(part.paused for part in parts),
    }


def _running(store: SyncStore, part: PartitionKeys) -> Counter[str]:
    """Count running jobs by queue: runs knows no queues, records do."""
    found: Counter[str] = Counter()
    cursor = ""
    while cursor != "0":
        page = store.query(page_of(part, part.runs, cursor or "0", _PAGE))
        cursor = page.cursor
        told = store.query(origins(part, [job_id for job_id, _ in page.fields]))
        found.update(origin.queue for origin in told if origin.queue is not None)
    return found
