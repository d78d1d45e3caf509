"""Reads what Redis holds at the end of a run, partition by partition; under history."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from redjob.codec import decode_attempts, decode_entry, decode_tombstone, is_stub
from redjob.keys import GROUP
from tests.support.history import PartitionDump, StreamState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redis import Redis

    from redjob.keys import Keyspace, PartitionKeys
    from redjob.model import Past

_PER_QUEUE = ("due", "ready", "held")


def dump_all(redis: Redis, keys: Keyspace, *, whole_journal: bool) -> list[PartitionDump]:
    """Read all partitions of a namespace in which nothing moves any more."""
    return [dump_partition(redis, part, whole_journal=whole_journal) for part in keys.parts]


def dump_partition(redis: Redis, part: PartitionKeys, *, whole_journal: bool) -> PartitionDump:
    """Read one partition; `whole_journal` says that nothing of it was trimmed."""
    keys: Any = redis.scan_iter(f"{part.base}*", count=10_000)  # pyright: ignore[reportUnknownVariableType]
    own = {_text(key).removeprefix(part.base) for key in keys}
    queues = sorted(name.split(":", 1)[1] for name in own if name.startswith("flow:"))
    runs = frozenset(_fields(redis, part.runs))
    dead = frozenset(
        _text(job_id) for queue in queues for job_id in _zset(redis, part.queue(queue).dead)
    )
    return PartitionDump(
        index=part.index,
        waiting=_waiting(redis, part, queues, runs),
        leases=frozenset(_text(job_id) for job_id in _zset(redis, part.running)),
        runs=runs,
        streams=[_stream(redis, part, queue) for queue in queues],
        tombstones={
            job_id: decode_tombstone(field)
            for job_id, field in _fields(redis, part.finished).items()
        },
        dead=dead,
        pasts=_pasts(redis, part),
        records=frozenset(_records(redis, part, own)),
        leftovers=list(_leftovers(redis, part, dead)),
        journal=_journal(redis, part) if whole_journal else None,
    )


def _waiting(
    redis: Redis, part: PartitionKeys, queues: list[str], runs: frozenset[str]
) -> dict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for queue in queues:
        for kind in _PER_QUEUE:
            for job_id in _zset(redis, getattr(part.queue(queue), kind)):
                found[_text(job_id)].append(f"{kind}:{queue}")
    for name in _fields(redis, part.dispatched):
        found[name].append("dispatched")
    for name in runs:
        found[name].append("runs")
    for job_id in _zset(redis, part.lost):
        found[_text(job_id)].append("lost")
    return dict(found)


def _stream(redis: Redis, part: PartitionKeys, queue: str) -> StreamState:
    q = part.queue(queue)
    groups: Any = redis.xinfo_groups(q.stream) if redis.exists(q.stream) else []
    pending = sum(group["pending"] for group in groups if _text(group["name"]) == GROUP)
    depth: Any = redis.hget(q.flow, "depth")
    return StreamState(queue, int(redis.xlen(q.stream)), pending, int(depth or 0))


def _pasts(redis: Redis, part: PartitionKeys) -> dict[str, Past]:
    fields = _fields(redis, part.attempts)
    return {job_id: decode_attempts(field).past for job_id, field in fields.items()}


def _records(redis: Redis, part: PartitionKeys, own: set[str]) -> Iterable[str]:
    ids = sorted(name.removeprefix("job:") for name in own if name.startswith("job:"))
    for start in range(0, len(ids), 500):
        chunk = ids[start : start + 500]
        docs: Any = redis.mget([part.job(job_id) for job_id in chunk])
        for job_id, doc in zip(chunk, docs, strict=True):
            if doc is not None and not is_stub(doc):
                yield job_id


def _leftovers(redis: Redis, part: PartitionKeys, dead: frozenset[str]) -> Iterable[str]:
    for name, key in (("cancels", part.cancels), ("progress", part.progress)):
        yield from (f"{name} of {job_id}" for job_id in _fields(redis, key))
    for job_id in _fields(redis, part.attempts):
        if job_id not in dead:
            yield f"attempts of {job_id}"


def _journal(redis: Redis, part: PartitionKeys) -> list[Any]:
    entries: Any = redis.xrange(part.journal)
    return [decode_entry(entry_id, fields) for entry_id, fields in entries]


def _fields(redis: Redis, key: str) -> dict[str, bytes]:
    found: Any = redis.hgetall(key)
    return {_text(field): value for field, value in found.items()}


def _zset(redis: Redis, key: str) -> list[bytes]:
    found: Any = redis.zrange(key, 0, -1)
    return list(found)


def _text(raw: bytes | str) -> str:
    return raw if isinstance(raw, str) else raw.decode()
