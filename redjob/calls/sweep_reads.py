"""What the sweeper reads: expired leases, dead jobs, and pages of the places for its scan."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from redjob.calls.call import Arg
from redjob.calls.reads import Due, Query, pairs
from redjob.keys import GROUP, PartitionKeys

# A record names task and queue before its payload; names have no quotes and at most 128 characters,
# so that the first 400 bytes tell the queue of a record of any size.
_QUEUE = re.compile(rb'"queue":"([A-Za-z0-9_.:-]{1,128})"')
_PREFIX_BYTES = 400


def expired(part: PartitionKeys, now_ms: int, *, skip: int, limit: int) -> Query[list[str]]:
    """Read running jobs whose lease ended by now_ms (server wall ms), longest ago first."""
    command: tuple[Arg, ...] = (
        "ZRANGE", part.running, "-inf", now_ms, "BYSCORE", "LIMIT", skip, limit,
    )  # fmt: skip
    return Query(part, [command], lambda raw: [job_id.decode() for job_id in raw[0]])


class RunFacts(NamedTuple):
    """What is known of a job that runs or waits to: its fields (b"" for none) and its record's size."""

    run: bytes
    attempts: bytes
    size: int


def run_facts(part: PartitionKeys, ids: Sequence[str]) -> Query[list[RunFacts]]:
    """Read runs, attempts and the record's size in bytes of each job."""
    if not ids:
        return Query(part, [], lambda _: [])
    commands: list[tuple[Arg, ...]] = [
        ("HMGET", part.runs, *ids),
        ("HMGET", part.attempts, *ids),
        *(("STRLEN", part.job(job_id)) for job_id in ids),
    ]
    return Query(
        part,
        commands,
        lambda raw: [
            RunFacts(run or b"", attempts or b"", size)
            for run, attempts, size in zip(raw[0], raw[1], raw[2:], strict=True)
        ],
    )


def record_sizes(part: PartitionKeys, ids: Sequence[str]) -> Query[list[int]]:
    """Read the size in bytes of each record, 0 where there is none."""
    return Query(part, [("STRLEN", part.job(job_id)) for job_id in ids], list)


class Origin(NamedTuple):
    """Where a dispatched job belongs: its queue (None if the record is gone or damaged)."""

    queue: str | None
    size: int
    attempts: bytes


def origins(part: PartitionKeys, ids: Sequence[str]) -> Query[list[Origin]]:
    """Read queue, record size and attempts of jobs, without their payloads."""
    if not ids:
        return Query(part, [], lambda _: [])
    commands: list[tuple[Arg, ...]] = [("HMGET", part.attempts, *ids)]
    for job_id in ids:
        commands.append(("GETRANGE", part.job(job_id), 0, _PREFIX_BYTES - 1))
        commands.append(("STRLEN", part.job(job_id)))

    def read(raw: list[Any]) -> list[Origin]:
        return [
            Origin(_queue_in(prefix), size, attempts or b"")
            for attempts, prefix, size in zip(raw[0], raw[1::2], raw[2::2], strict=True)
        ]

    return Query(part, commands, read)


def _queue_in(prefix: bytes) -> str | None:
    found = _QUEUE.search(prefix)
    return found[1].decode() if found else None


class Page(NamedTuple):
    """One page of a hash; cursor "0" says that it was the last."""

    cursor: str
    fields: list[tuple[str, bytes]]


def page_of(part: PartitionKeys, key: str, cursor: str, count: int) -> Query[Page]:
    """Read about `count` fields of a hash from a cursor on ("0" begins)."""

    def read(raw: list[Any]) -> Page:
        after, flat = raw[0]
        fields = [(flat[i].decode(), flat[i + 1]) for i in range(0, len(flat), 2)]
        return Page(after.decode(), fields)

    return Query(part, [("HSCAN", key, cursor, "COUNT", count)], read)


def without_lease(part: PartitionKeys, ids: Sequence[str]) -> Query[list[bool]]:
    """Read which jobs have no score in running."""
    if not ids:
        return Query(part, [], lambda _: [])
    command: tuple[Arg, ...] = ("ZMSCORE", part.running, *ids)
    return Query(part, [command], lambda raw: [score is None for score in raw[0]])


class StreamFacts(NamedTuple):
    """A queue's stream: whether consumers can read it, its length, and what its flow says.

    `virtual` is the virtual time that release has come to. `fields` counts those of flow, of which
    FLOW_FIELDS at most are not of a tenant.
    """

    has_group: bool
    length: int
    depth: int
    paused: bool
    virtual: int
    fields: int


FLOW_FIELDS = 5  # depth, limit, paused, V, group


def stream_facts(part: PartitionKeys, queue: str) -> Query[StreamFacts]:
    """Read length and depth of a queue's stream."""
    q = part.queue(queue)
    commands: list[tuple[Arg, ...]] = [
        ("EXISTS", q.stream),
        ("XLEN", q.stream),
        ("HMGET", q.flow, "depth", "group", "paused", "V"),
        ("HLEN", q.flow),
    ]

    def read(raw: list[Any]) -> StreamFacts:
        exists, length, (depth, group, paused, virtual), fields = raw
        return StreamFacts(
            has_group=bool(exists and group),
            length=length,
            depth=int(depth or 0),
            paused=paused is not None,
            virtual=int(virtual or 0),
            fields=fields,
        )

    return Query(part, commands, read)


def entries_after(
    part: PartitionKeys, queue: str, after: str, limit: int
) -> Query[list[tuple[str, str]]]:
    """Read entries of a queue's stream after one ("" begins), with the id of the job that each names."""
    start = f"({after}" if after else "-"
    command: tuple[Arg, ...] = ("XRANGE", part.queue(queue).stream, start, "+", "COUNT", limit)

    def read(raw: list[Any]) -> list[tuple[str, str]]:
        found = [(entry.decode(), dict(zip(f[::2], f[1::2], strict=True))) for entry, f in raw[0]]
        return [
            (entry, fields.get(b"id", b"").decode("utf-8", "replace")) for entry, fields in found
        ]

    return Query(part, [command], read)


def named_entries(part: PartitionKeys, ids: Sequence[str]) -> Query[list[str]]:
    """Read the entry that `dispatched` names for each job, "" for none."""
    if not ids:
        return Query(part, [], lambda _: [])
    command: tuple[Arg, ...] = ("HMGET", part.dispatched, *ids)
    return Query(part, [command], lambda raw: [(entry or b"").decode() for entry in raw[0]])


def dispatched_count(part: PartitionKeys) -> Query[int]:
    """Count the jobs that are in the streams of a partition."""
    return Query(part, [("HLEN", part.dispatched)], lambda raw: int(raw[0]))


def never_begun(
    part: PartitionKeys, queue: str, *, idle_ms: int, after: str, limit: int
) -> Query[list[str]]:
    """Read entries that a consumer was given at least idle_ms ago and has not begun, after an entry.

    XPENDING and not XAUTOCLAIM: it changes nothing, so that a sweeper that dies here, or is told to
    wait, has not made the entries look fresh; and it looks past any number of fresh ones.
    """
    start = f"({after}" if after else "-"
    command: tuple[Arg, ...] = (
        "XPENDING", part.queue(queue).stream, GROUP, "IDLE", idle_ms, start, "+", limit,
    )  # fmt: skip
    return Query(part, [command], lambda raw: [entry[0].decode() for entry in raw[0]])


def dead_before(part: PartitionKeys, queue: str, until_ms: int, limit: int) -> Query[list[Due]]:
    """Read dead jobs of a queue that died by until_ms (wall ms), longest ago first; the time is that of death."""
    command: tuple[Arg, ...] = (
        "ZRANGE", part.queue(queue).dead, "-inf", until_ms, "BYSCORE", "LIMIT", 0, limit, "WITHSCORES",
    )  # fmt: skip
    return Query(part, [command], lambda raw: [Due(*pair) for pair in pairs(raw[0])])


def forget_lost(part: PartitionKeys, until_ms: int) -> Query[None]:
    """Drop the ids of jobs that were lost by until_ms (wall ms): they are there for people to look at."""
    command: tuple[Arg, ...] = ("ZREMRANGEBYSCORE", part.lost, "-inf", until_ms)
    return Query(part, [command], lambda _: None)


def without_record(part: PartitionKeys, ids: Sequence[str]) -> Query[list[str]]:
    """Read which jobs have no record, and no stub either."""

    def read(raw: list[Any]) -> list[str]:
        return [job_id for job_id, there in zip(ids, raw, strict=True) if not there]

    return Query(part, [("EXISTS", part.job(job_id)) for job_id in ids], read)
