"""`redjob dead`: the jobs whose attempts are used up."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import click
import msgspec

from redjob.calls import sweep
from redjob.calls.overview import latest_dead
from redjob.calls.reads import Due, queue_names, records
from redjob.calls.sweep_reads import dead_before
from redjob.cli.options import (
    client_of,
    connection_options,
    example,
    json_option,
    span,
    store_of,
)
from redjob.cli.output import moment, print_fields, print_json, print_table
from redjob.codec import decode_record, stub_of
from redjob.config import Connection
from redjob.errors import WrongState
from redjob.ids import new_token
from redjob.keys import PartitionKeys
from redjob.model import JobInfo, JobState
from redjob.store.sync import SyncStore

_PAGE = 100


@click.group(epilog=example("redjob dead list -q email"))
def dead() -> None:
    """Look at dead jobs, run them again or drop them."""


@dead.command(name="list", epilog=example("redjob dead list -q email --limit 10"))
@click.option("-q", "--queue", help="Of this queue only.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True)
@json_option
@connection_options
def list_(connection: Connection, /, *, queue: str | None, limit: int, as_json: bool) -> None:
    """List dead jobs, the latest first."""
    store, client = store_of(connection), client_of(connection)
    found = [
        (due.run_at_ms, due.id, name)
        for part, name in _places(store, queue)
        for due in store.query(latest_dead(part, name, limit))
    ]
    found.sort(reverse=True)
    infos = [client.info(job_id, queue=name) for _, job_id, name in found[:limit]]
    # One that was replayed since it was listed is dead no more.
    infos = [info for info in infos if info.state is JobState.FAILED]
    if as_json:
        for info in infos:
            print_json(info)
    else:
        print_table(["id", "died", "queue", "task", "attempts", "error"], [*map(_row, infos)])


@dead.command(epilog=example("redjob dead show 019a2b3c-…-1f2e"))
@click.argument("job_id")
@json_option
@connection_options
def show(connection: Connection, /, *, job_id: str, as_json: bool) -> None:
    """Show a dead job with its payload and last error."""
    info = client_of(connection).info(job_id)
    if info.state is not JobState.FAILED:
        raise WrongState(job_id, "dead show", info.state)
    if as_json:
        print_json(info)
    else:
        print_fields(msgspec.structs.asdict(info))


@dead.command(epilog=example("redjob dead replay -q email"))
@click.argument("job_ids", nargs=-1)
@click.option("-q", "--queue", help="All of this queue.")
@json_option
@connection_options
def replay(
    connection: Connection, *, job_ids: tuple[str, ...], queue: str | None, as_json: bool
) -> None:
    """Run dead jobs again: those named, or with -q all of a queue."""
    _one_of(job_ids, queue)
    client = client_of(connection)
    count = 0
    for job_id in job_ids:
        client.replay(job_id)
        count += 1
    if queue is not None:
        count += sum(_replayed(connection, queue))
    _tell(as_json, "replayed", count)


@dead.command(epilog=example("redjob dead purge -q email --older-than 7d"))
@click.argument("job_ids", nargs=-1)
@click.option("-q", "--queue", help="All of this queue.")
@click.option("--older-than", type=span, default="0", help="Only those dead for longer than this.")
@json_option
@connection_options
def purge(
    connection: Connection,
    /,
    *,
    job_ids: tuple[str, ...],
    queue: str | None,
    older_than: timedelta,
    as_json: bool,
) -> None:
    """Drop dead jobs for good: those named, or with -q all of a queue."""
    _one_of(job_ids, queue)
    store, client = store_of(connection), client_of(connection)
    keep_ms = round(older_than.total_seconds() * 1000)
    count = 0
    for job_id in job_ids:
        info = client.info(job_id)
        if info.state is not JobState.FAILED or info.queue is None or info.ended_ms is None:
            raise WrongState(job_id, "dead purge", info.state)
        part = store.keys.of_job(job_id)
        count += _purge(store, part, info.queue, [Due(job_id, info.ended_ms)], keep_ms)
    if queue is not None:
        count += sum(
            _purge(store, part, queue, page, keep_ms)
            for part, _ in _places(store, queue)
            for page in _pages(store, part, queue, keep_ms)
        )
    _tell(as_json, "purged", count)


def _places(store: SyncStore, queue: str | None) -> Iterator[tuple[PartitionKeys, str]]:
    for part in store.keys.parts:
        for name in [queue] if queue is not None else store.query(queue_names(part)):
            yield part, name


def _pages(store: SyncStore, part: PartitionKeys, queue: str, keep_ms: int) -> Iterator[list[Due]]:
    """Pages of what is dead for long enough now; whoever asks for the next one has moved the last."""
    store.query(queue_names(part))  # the first answer tells the server's clock
    until_ms = store.now_ms(part) - keep_ms
    seen: set[str] = set()
    while page := store.query(dead_before(part, queue, until_ms, _PAGE)):
        fresh = [due for due in page if due.id not in seen]
        if not fresh:  # what is left could not be moved
            return
        seen.update(due.id for due in fresh)
        yield fresh


def _replayed(connection: Connection, queue: str) -> Iterator[int]:
    store, client = store_of(connection), client_of(connection)
    for part, _ in _places(store, queue):
        for page in _pages(store, part, queue, 0):
            for due in page:
                try:
                    client.replay(due.id, queue=queue)
                except WrongState:  # somebody else has replayed it, or purged it
                    continue
                yield 1


def _purge(store: SyncStore, part: PartitionKeys, queue: str, page: list[Due], keep_ms: int) -> int:
    docs = store.query(records(part, [due.id for due in page]))
    jobs = [
        (due.id, _stub(doc, due.run_at_ms, store.now_ms(part)))
        for due, doc in zip(page, docs, strict=True)
    ]
    call = sweep.purge(part, queue, jobs, keep_ms=keep_ms, tag=new_token())
    codes = store.call(call).codes
    return codes.count("M") + codes.count("=")


def _stub(doc: bytes | None, died_ms: int, now_ms: int) -> bytes:
    try:
        record = decode_record(doc or b"")
    except msgspec.DecodeError:  # no key can be read from it, so none is guarded
        return b""
    return stub_of(record, JobState.FAILED, died_ms, now_ms)


def _row(info: JobInfo) -> list[object]:
    error = f"{info.error.type}: {info.error.message}" if info.error else ""
    return [
        info.id, moment(info.ended_ms), info.queue, info.task, info.attempt, error[:60],
    ]  # fmt: skip


def _one_of(job_ids: tuple[str, ...], queue: str | None) -> None:
    if bool(job_ids) == (queue is not None):
        raise click.UsageError("pass ids of jobs, or -q with a queue")


def _tell(as_json: bool, verb: str, count: int) -> None:
    if as_json:
        print_json({verb: count})
    else:
        click.echo(f"{verb} {count}")
