"""Plain reads: the commands to send and what their replies mean. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from redjob.calls.call import Arg
from redjob.codec import JournalEntry, decode_entry
from redjob.keys import PartitionKeys
from redjob.partitions import key_slot

T_co = TypeVar("T_co", covariant=True)
_KEYLESS = frozenset({"TIME", "INFO", "CONFIG", "CLUSTER", "FUNCTION"})


@dataclass(slots=True)
class Query(Generic[T_co]):
    """Commands for the server of one partition (None: any), sent in one pipeline."""

    part: PartitionKeys | None
    commands: list[tuple[Arg, ...]]
    read: Callable[[list[Any]], T_co]

    @property
    def slot(self) -> int | None:
        """The slot that all of its keys are in; None: there are no keys, any server will do."""
        if self.part is not None:
            return self.part.slot
        for command in self.commands:
            if command[0] not in _KEYLESS:
                key = command[1]
                return key_slot(key if isinstance(key, bytes) else str(key))
        return None


class Due(NamedTuple):
    """A job that waits in due: id and run_at in wall ms."""

    id: str
    run_at_ms: int


def pairs(flat: list[Any]) -> list[tuple[str, int]]:
    """Read a WITHSCORES reply whose scores are ms."""
    return [(flat[i].decode(), int(float(flat[i + 1]))) for i in range(0, len(flat), 2)]


def peek_due(
    part: PartitionKeys, queue: str, *, after_ms: int | None, until_ms: int, limit: int
) -> Query[list[Due]]:
    """Read the next jobs of a queue with after_ms < run_at ≤ until_ms, earliest first."""
    low: Arg = "-inf" if after_ms is None else f"({after_ms}"
    command: tuple[Arg, ...] = (
        "ZRANGE", part.queue(queue).due, low, until_ms, "BYSCORE", "LIMIT", 0, limit, "WITHSCORES",
    )  # fmt: skip
    return Query(part, [command], lambda raw: [Due(*pair) for pair in pairs(raw[0])])


def queues_due(part: PartitionKeys, until_ms: int) -> Query[list[tuple[str, int]]]:
    """Read the queues whose earliest job is due by until_ms, with that time."""
    command: tuple[Arg, ...] = (
        "ZRANGE", part.queues, "-inf", until_ms, "BYSCORE", "WITHSCORES",
    )  # fmt: skip
    return Query(part, [command], lambda raw: pairs(raw[0]))


def queue_names(part: PartitionKeys) -> Query[list[str]]:
    """Read the names of all queues that a partition has seen."""
    return Query(
        part,
        [("ZRANGE", part.queues, 0, -1)],
        lambda raw: [name.decode() for name in raw[0]],
    )


def records(part: PartitionKeys, ids: Sequence[str]) -> Query[list[bytes | None]]:
    """Read the records of jobs, None where there is none."""
    if not ids:
        return Query(part, [], lambda _: [])
    return Query(part, [("MGET", *map(part.job, ids))], lambda raw: list(raw[0]))


class JournalPosition(NamedTuple):
    """Where the journal of a partition stands, and who owns it."""

    seq: int
    tag: str
    epoch: int
    incarnation: str
    run_id: str


def journal_position(part: PartitionKeys) -> Query[JournalPosition | None]:
    """Read the journal's position from meta; None for a partition that nobody has opened."""

    def read(raw: list[Any]) -> JournalPosition | None:
        seq, tag, incarnation, run_id = raw[0]
        if incarnation is None:
            return None
        return JournalPosition(
            int(seq), tag.decode(), int(raw[1] or 0), incarnation.decode(), (run_id or b"").decode()
        )

    commands: list[tuple[Arg, ...]] = [
        ("HMGET", part.meta, "seq", "tag", "incarnation", "run_id"),
        ("HGET", part.owner, "epoch"),
    ]
    return Query(part, commands, read)


def read_journal(part: PartitionKeys, after_seq: int, limit: int) -> Query[list[JournalEntry]]:
    """Read journal entries after a seq, oldest first."""
    command: tuple[Arg, ...] = (
        "XRANGE", part.journal, f"({after_seq}-0", "+", "COUNT", limit,
    )  # fmt: skip
    return Query(
        part, [command], lambda raw: [decode_entry(entry, fields) for entry, fields in raw[0]]
    )
