"""What a worker reads besides its scripts, and how it shows itself: looks, heads of ready, presence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from redjob.calls.call import Arg
from redjob.calls.reads import Query
from redjob.keys import Keyspace, PartitionKeys, workers_key


def work_waiting(part: PartitionKeys, queues: Sequence[str]) -> Query[bool]:
    """Whether a partition holds entries or ready jobs of these queues, also stale ones."""
    commands: list[tuple[Arg, ...]] = []
    for queue in queues:
        keys = part.queue(queue)
        commands += (("XLEN", keys.stream), ("ZCARD", keys.ready))
    return Query(part, commands, any)


def ready_heads(part: PartitionKeys, queue: str, limit: int) -> Query[list[str]]:
    """Read the jobs of one queue that are first to leave ready."""
    command: tuple[Arg, ...] = ("ZRANGE", part.queue(queue).ready, 0, limit - 1)
    return Query(part, [command], lambda raw: [job_id.decode() for job_id in raw[0]])


def queues_unseen(part: PartitionKeys, queues: Sequence[str]) -> Query[list[str]]:
    """Read which of these queues never had a job in a partition."""

    def read(raw: list[Any]) -> list[str]:
        return [queue for queue, score in zip(queues, raw[0], strict=True) if score is None]

    return Query(part, [("ZMSCORE", part.queues, *queues)], read)


class Stray(NamedTuple):
    """A job that an entry named although nothing named that entry; b"" where there is nothing."""

    id: str
    doc: bytes
    attempts: bytes


def strays(part: PartitionKeys, ids: Sequence[str]) -> Query[list[Stray]]:
    """Read records and attempts of jobs."""

    def read(raw: list[Any]) -> list[Stray]:
        return [
            Stray(job_id, doc or b"", attempts or b"")
            for job_id, doc, attempts in zip(ids, raw[0], raw[1], strict=True)
        ]

    return Query(part, [("MGET", *map(part.job, ids)), ("HMGET", part.attempts, *ids)], read)


def bell_command(
    parts: Sequence[PartitionKeys], queues: Sequence[str], block_s: int
) -> tuple[Arg, ...]:
    """The blocking read of all bells of these queues, for a connection of its own."""
    return ("BLPOP", *[part.queue(queue).bell for part in parts for queue in queues], block_s)


def ring_again(bell: str) -> Query[None]:
    """Give back a token that was drawn in vain."""
    return Query(None, [("RPUSH", bell, "1")], lambda _: None)


def show_worker(keys: Keyspace, worker: str, now_ms: int, forget_ms: int) -> Query[None]:
    """Write that a worker is there, and drop those not heard of for forget_ms."""
    key = workers_key(keys.namespace)
    commands: list[tuple[Arg, ...]] = [
        ("ZADD", key, now_ms, worker),
        ("ZREMRANGEBYSCORE", key, "-inf", now_ms - forget_ms),
    ]
    return Query(None, commands, lambda _: None)


def hide_worker(keys: Keyspace, worker: str) -> Query[None]:
    """Take a worker off the list."""
    return Query(None, [("ZREM", workers_key(keys.namespace), worker)], lambda _: None)
