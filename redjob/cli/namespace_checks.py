"""What `redjob doctor` finds of a namespace: its partitions and who is at work; under doctor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from redjob.calls.overview import (
    PartitionFacts,
    Present,
    agreed,
    partition_facts,
    present,
    workers_seen,
)
from redjob.cli.server_checks import Finding
from redjob.errors import NotReady, PartitionMismatch, ServerUnsuitable, StoreUnavailable
from redjob.keys import PartitionKeys
from redjob.partitions import QUORUM_KEYS
from redjob.store.sync import SyncStore

_SWEEPER_MS = 10_000  # after such a silence the next sweeper gives workers a grace first
_WORKER_MS = 60_000
_QUORUM_S = 1.0  # the wait for one quorum key: the others may do without it
_Facts = Mapping[PartitionKeys, PartitionFacts | None]


def of_namespace(
    store: SyncStore, run_id_of: Callable[[PartitionKeys], str | None]
) -> dict[str, Finding]:
    """Check a namespace; `run_id_of` names the server that a partition is on, None: it is away."""
    try:
        parts = store.keys.parts
    except (NotReady, PartitionMismatch, ServerUnsuitable, StoreUnavailable) as exc:
        return {"namespace": ("fail", str(exc))}
    run_ids = {part: run_id_of(part) for part in parts}
    away = [part.index for part in parts if run_ids[part] is None]
    facts = {
        part: store.query(partition_facts(part)) for part in parts if run_ids[part] is not None
    }
    return {
        "namespace": ("ok", f"{store.namespace}, {len(parts)} partitions"),
        "partitions": (
            ("fail", f"the primary of partition {_few(away)} is away")
            if away
            else _partitions(facts, run_ids)
        ),
        "owners": _or_away(lambda: _owners(store, parts)),
        "sweeper": _sweeper(store, facts),
        "workers": _or_away(lambda: _workers(store)),
        "lost": _lost([fact for fact in facts.values() if fact is not None]),
    }


def present_of(store: SyncStore) -> Present:
    """Who is there, by all quorum keys that can be read. Raises StoreUnavailable if too few can."""
    count = 1 if store.is_one_server else QUORUM_KEYS
    found: list[Present] = []
    trouble: StoreUnavailable | None = None
    for index in range(count):
        try:
            found.append(store.query(present(store.namespace, index), deadline_s=_QUORUM_S))
        except StoreUnavailable as exc:
            trouble = exc
    if trouble is not None and len(found) <= count // 2:
        raise trouble
    return agreed(found, count)


def _or_away(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except StoreUnavailable as exc:
        return "fail", str(exc)


def _partitions(facts: _Facts, run_ids: Mapping[PartitionKeys, str | None]) -> Finding:
    problems: dict[str, Callable[[PartitionKeys, PartitionFacts | None], bool]] = {
        "not opened": lambda _, fact: fact is None,
        "not RUNNING": lambda _, fact: fact is not None and fact.state != "RUNNING",
        "on hold until an owner has checked the restarted server": (
            lambda part, fact: fact is not None and fact.run_id != run_ids[part]
        ),
    }
    for problem, has in problems.items():
        indexes = [part.index for part, fact in facts.items() if has(part, fact)]
        if indexes:
            return "fail", f"partition {_few(indexes)} {problem}"
    return "ok", "all RUNNING"


def _owners(store: SyncStore, parts: Sequence[PartitionKeys]) -> Finding:
    there = present_of(store)
    ownerless = [part.index for part in parts if part.index not in there.owners]
    if ownerless:
        return "fail", f"no scheduler owns partition {_few(ownerless)}: start `redjob scheduler`"
    return "ok", f"every partition, {len(there.nodes)} scheduler(s)"


def _sweeper(store: SyncStore, facts: _Facts) -> Finding:
    ages = [
        store.now_ms(part) - (fact.sweeper_seen_ms or 0)
        for part, fact in facts.items()
        if fact is not None and fact.sweeper_seen_ms
    ]
    if not ages or len(ages) < sum(fact is not None for fact in facts.values()):
        return "fail", "never seen: start `redjob sweeper`"
    ago_ms = max(0, *ages)
    if ago_ms > _SWEEPER_MS:
        return "fail", f"last seen {ago_ms // 1000} s ago: start `redjob sweeper`"
    return "ok", f"seen {ago_ms / 1000:.1f} s ago"


def _workers(store: SyncStore) -> Finding:
    seen = store.query(workers_seen(store.namespace))
    alive = [name for name, seen_ms in seen if store.now_ms() - seen_ms <= _WORKER_MS]
    if alive:
        return "ok", f"{len(alive)} heard in the last minute"
    return "warn", "none heard in the last minute: start `redjob worker app:app`"


def _lost(facts: Sequence[PartitionFacts]) -> Finding:
    hit = [fact for fact in facts if fact.lost]
    if not hit:
        return "ok", "no job has lost its record"
    count = sum(fact.lost for fact in hit)
    return "warn", (
        f"{count} job(s) whose record was deleted or evicted, such as {hit[0].latest_lost}: "
        "see `lost job=` in the sweeper's log"
    )


def _few(indexes: Sequence[int]) -> str:
    more = f" and {len(indexes) - 5} more" if len(indexes) > 5 else ""
    return ", ".join(map(str, indexes[:5])) + more
