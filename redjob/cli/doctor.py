"""`redjob doctor`: whether everything that redjob needs is there and as it should be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import click

from redjob.calls.overview import (
    PartitionFacts,
    config_value,
    partition_facts,
    present,
    workers_seen,
)
from redjob.calls.reads import Query
from redjob.cli.options import connection_options, example, json_option, store_of
from redjob.cli.output import print_json, print_table
from redjob.clock import SystemClock
from redjob.config import Connection
from redjob.errors import NotReady, PartitionMismatch, ScriptFailed, ServerUnsuitable
from redjob.store.facts import MIN_REDIS, MIN_VALKEY, ServerFacts, facts_query, parse_info
from redjob.store.sync import SyncStore

Status = Literal["ok", "warn", "fail"]
Finding = tuple[Status, str]

_SKEW_WARN_MS, _SKEW_FAIL_MS = 1000, 5000
_LISTPACK_BYTES = 1024  # redjob's small hash values stay in the compact form up to here
_SWEEPER_MS = 10_000  # after such a silence the next sweeper gives workers a grace first
_WORKER_MS = 60_000


@click.command(epilog=example("redjob doctor --redis-url redis://localhost:6379/0"))
@json_option
@connection_options
def doctor(connection: Connection, /, *, as_json: bool) -> None:
    """Check the server, the namespace and who is at work; exit 1 if something is wrong."""
    store = store_of(connection)
    server = store.query(facts_query())  # not reachable: the command ends here, with 3
    findings = {
        **_of_server(store, server, allow_eviction=connection.allow_eviction),
        **_of_namespace(store),
    }
    good = all(status != "fail" for status, _ in findings.values())
    if as_json:
        checks = [
            {"name": name, "status": status, "detail": detail}
            for name, (status, detail) in findings.items()
        ]
        print_json({"ok": good, "server": server.label, "checks": checks})
    else:
        rows = [(status, name, detail) for name, (status, detail) in findings.items()]
        print_table(["", "check", "found"], rows)
    if not good:
        click.get_current_context().exit(1)


def _of_server(
    store: SyncStore, server: ServerFacts, *, allow_eviction: bool
) -> dict[str, Finding]:
    return {
        "version": _version(server),
        "eviction": _eviction(server, allow_eviction=allow_eviction),
        "appendonly": (
            ("ok", "on") if server.appendonly else ("warn", "off: a crash of the server loses jobs")
        ),
        "maxmemory": _memory(store, server),
        "hash-max-listpack-value": _listpack(store),
        "clock": _clock(store),
    }


def _version(server: ServerFacts) -> Finding:
    least = MIN_VALKEY if server.name == "valkey" else MIN_REDIS
    if server.version < least:
        return "fail", f"{server.label} is too old: redjob needs Redis 7.0 or Valkey 7.2"
    return "ok", server.label


def _eviction(server: ServerFacts, *, allow_eviction: bool) -> Finding:
    if server.eviction == "noeviction":
        return "ok", server.eviction
    told = f"{server.eviction}: the server may delete jobs; set maxmemory-policy noeviction"
    return ("warn" if allow_eviction else "fail"), told


def _memory(store: SyncStore, server: ServerFacts) -> Finding:
    memory = store.query(Query(None, [("INFO", "memory")], lambda raw: parse_info(raw[0])))
    used = int(memory.get("used_memory", "0"))
    if not server.maxmemory:
        return "ok", f"{used >> 20} MiB used, no limit but the machine's"
    share = used / server.maxmemory
    told = f"{used >> 20} of {server.maxmemory >> 20} MiB used ({share:.0%})"
    if share >= 1:
        return "fail", f"{told}: new jobs are refused"
    return ("warn" if share > 0.9 else "ok"), told


def _listpack(store: SyncStore) -> Finding:
    try:
        value = store.query(config_value("hash-max-listpack-value"))
    except (ScriptFailed, ServerUnsuitable):
        return "ok", "not told by this server (no CONFIG)"
    if value is None or int(value) >= _LISTPACK_BYTES:
        return "ok", value or "no such setting"
    return "warn", f"{value}: {_LISTPACK_BYTES} saves memory where few jobs run or have failed"


def _clock(store: SyncStore) -> Finding:
    clock = SystemClock()
    before_ms = clock.wall_ms()
    server_ms = store.query(
        Query(None, [("TIME",)], lambda raw: int(raw[0][0]) * 1000 + int(raw[0][1]) // 1000)
    )
    skew_ms = server_ms - (before_ms + clock.wall_ms()) // 2
    told = f"the server is {abs(skew_ms)} ms {'ahead' if skew_ms >= 0 else 'behind'}"
    if abs(skew_ms) > _SKEW_FAIL_MS:
        return "fail", f"{told}; synchronise the clocks"
    return ("warn" if abs(skew_ms) > _SKEW_WARN_MS else "ok"), told


def _of_namespace(store: SyncStore) -> dict[str, Finding]:
    try:
        parts = store.keys.parts
    except (NotReady, PartitionMismatch, ServerUnsuitable) as exc:
        return {"namespace": ("fail", str(exc))}
    facts = [store.query(partition_facts(part)) for part in parts]
    there = store.query(present(store.namespace))
    ownerless = [part.index for part in parts if part.index not in there.owners]
    found: dict[str, Finding] = {
        "namespace": ("ok", f"{store.namespace}, {len(parts)} partitions"),
        "partitions": _partitions(facts, {server.run_id for server in store.facts()}),
        "owners": (
            ("fail", f"no scheduler owns partition {_few(ownerless)}: start `redjob scheduler`")
            if ownerless
            else ("ok", f"every partition, {len(there.nodes)} scheduler(s)")
        ),
        "sweeper": _sweeper(facts, store.now_ms()),
        "workers": _workers(store),
        "lost": _lost(facts),
    }
    return found


def _partitions(facts: list[PartitionFacts | None], run_ids: set[str]) -> Finding:
    problems: dict[str, Callable[[PartitionFacts | None], bool]] = {
        "not opened": lambda fact: fact is None,
        "not RUNNING": lambda fact: fact is not None and fact.state != "RUNNING",
        "on hold until an owner has checked the restarted server": (
            lambda fact: fact is not None and fact.run_id not in run_ids
        ),
    }
    for problem, has in problems.items():
        indexes = [index for index, fact in enumerate(facts) if has(fact)]
        if indexes:
            return "fail", f"partition {_few(indexes)} {problem}"
    return "ok", "all RUNNING"


def _sweeper(facts: list[PartitionFacts | None], now_ms: int) -> Finding:
    seen = [fact.sweeper_seen_ms for fact in facts if fact is not None]
    oldest_ms = min((seen_ms or 0 for seen_ms in seen), default=0)
    if not oldest_ms:
        return "fail", "never seen: start `redjob sweeper`"
    ago_ms = max(0, now_ms - oldest_ms)
    if ago_ms > _SWEEPER_MS:
        return "fail", f"last seen {ago_ms // 1000} s ago: start `redjob sweeper`"
    return "ok", f"seen {ago_ms / 1000:.1f} s ago"


def _workers(store: SyncStore) -> Finding:
    seen = store.query(workers_seen(store.namespace))
    alive = [name for name, seen_ms in seen if store.now_ms() - seen_ms <= _WORKER_MS]
    if alive:
        return "ok", f"{len(alive)} heard in the last minute"
    return "warn", "none heard in the last minute: start `redjob worker app:app`"


def _lost(facts: list[PartitionFacts | None]) -> Finding:
    hit = [fact for fact in facts if fact is not None and fact.lost]
    if not hit:
        return "ok", "no job has lost its record"
    count = sum(fact.lost for fact in hit)
    return "warn", (
        f"{count} job(s) whose record was deleted or evicted, such as {hit[0].latest_lost}: "
        "see `lost job=` in the sweeper's log"
    )


def _few(indexes: list[int]) -> str:
    more = f" and {len(indexes) - 5} more" if len(indexes) > 5 else ""
    return ", ".join(map(str, indexes[:5])) + more
