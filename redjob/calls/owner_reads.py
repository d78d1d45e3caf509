"""What owners read: the pulse of a partition, its queues, ready heads, tombstones, journals' tails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from redjob.calls.call import Arg
from redjob.calls.reads import Query
from redjob.codec import JournalEntry, decode_entry, decoder_of
from redjob.keys import PartitionKeys
from redjob.model import DEFAULT_PRIORITY, DEFAULT_TENANT


def server_time(part: PartitionKeys) -> Query[float]:
    """Read the server's clock: wall ms with its microseconds as a fraction."""
    return Query(part, [("TIME",)], lambda raw: int(raw[0][0]) * 1000 + int(raw[0][1]) / 1000)


class Pulse(NamedTuple):
    """A partition at one moment: queues with work due, and whether it is still what its owner knows.

    `incarnation` "" says that meta is gone.
    """

    due: list[str]
    incarnation: str
    epoch: int
    seq: int


def pulse(part: PartitionKeys, until_ms: int) -> Query[Pulse]:
    """Read what is due by until_ms (server wall ms), and the marks in meta."""

    def read(raw: list[Any]) -> Pulse:
        incarnation, epoch, seq = raw[1]
        due = [name.decode() for name in raw[0]]
        return Pulse(due, (incarnation or b"").decode(), int(epoch or 0), int(seq or 0))

    commands: list[tuple[Arg, ...]] = [
        ("ZRANGE", part.queues, "-inf", until_ms, "BYSCORE"),
        ("HMGET", part.meta, "incarnation", "epoch", "seq"),
    ]
    return Query(part, commands, read)


def all_queues(part: PartitionKeys) -> Query[dict[str, float]]:
    """Read all queues that a partition has seen, with the ms of their earliest job (inf: none)."""

    def read(raw: list[Any]) -> dict[str, float]:
        flat = raw[0]
        return {flat[i].decode(): float(flat[i + 1]) for i in range(0, len(flat), 2)}

    return Query(part, [("ZRANGE", part.queues, 0, -1, "WITHSCORES")], read)


class Waiting(NamedTuple):
    """How many jobs of one queue wait in due and in ready."""

    due: int
    ready: int


def waiting(part: PartitionKeys, queue: str) -> Query[Waiting]:
    """Count what waits in one queue."""
    q = part.queue(queue)
    return Query(part, [("ZCARD", q.due), ("ZCARD", q.ready)], lambda raw: Waiting(*raw))


class ReadyHead(NamedTuple):
    """The first jobs of ready, and how many more the stream may hold (None: any number)."""

    ids: list[str]
    room: int | None


def ready_head(
    part: PartitionKeys, queue: str, *, depth_limit: str, count: int
) -> Query[ReadyHead]:
    """Read the first jobs of ready; depth_limit holds for queues that have none of their own."""
    q = part.queue(queue)

    def read(raw: list[Any]) -> ReadyHead:
        depth, own_limit = raw[1]
        limit = own_limit.decode() if own_limit else depth_limit
        room = None if limit == "none" else max(0, int(limit) - int(depth or 0))
        return ReadyHead([job_id.decode() for job_id in raw[0]], room)

    commands: list[tuple[Arg, ...]] = [
        ("ZRANGE", q.ready, 0, count - 1),
        ("HMGET", q.flow, "depth", "limit"),
    ]
    return Query(part, commands, read)


class TombstonePage(NamedTuple):
    """One page of `finished`: the next cursor (0: that was the last), ids and when they ended, ms."""

    cursor: int
    found: list[tuple[str, int]]


def tombstone_page(part: PartitionKeys, cursor: int, count: int) -> Query[TombstonePage]:
    """Read about `count` tombstones from a cursor on (0 begins)."""

    def read(raw: list[Any]) -> TombstonePage:
        after, flat = raw[0]
        fields = ((flat[i].decode(), flat[i + 1].split(b" ", 3)) for i in range(0, len(flat), 2))
        # a damaged tombstone answers nobody: 0 lets it look old, and the script leaves it alone
        found = [(job_id, _number(words[2]) if len(words) > 2 else 0) for job_id, words in fields]
        return TombstonePage(int(after), found)

    return Query(part, [("HSCAN", part.finished, cursor, "COUNT", count)], read)


def _number(digits: bytes) -> int:
    return int(digits) if digits.isdigit() else 0


class Order(msgspec.Struct, frozen=True):
    """What ready is ordered by, out of a record."""

    priority: int = DEFAULT_PRIORITY
    tenant: str = DEFAULT_TENANT


_decode_order = decoder_of(Order)


def order_of(doc: bytes) -> Order:
    """Read priority and tenant; a damaged record gets the defaults, since its worker judges it."""
    try:
        return _decode_order(doc)
    except msgspec.DecodeError:
        return Order()


def read_tails(
    tails: Sequence[tuple[PartitionKeys, int]], *, count: int, block_ms: int
) -> tuple[Arg, ...]:
    """Build the XREAD that waits for entries after a seq in each of several journals."""
    keys = [part.journal for part, _ in tails]
    after = [f"{seq}-0" for _, seq in tails]
    return ("XREAD", "COUNT", count, "BLOCK", block_ms, "STREAMS", *keys, *after)


def tails_reply(raw: Any) -> list[tuple[str, list[JournalEntry]]]:
    """Read its reply: journal key and new entries, for the journals that have some."""
    return [
        (key.decode(), [decode_entry(entry, fields) for entry, fields in entries])
        for key, entries in raw or ()
    ]
