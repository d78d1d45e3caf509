"""What must hold of a partition between any two script calls, as checks on a dumped state."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

from tests.support.dump import Entry, Expiring, Journaled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.dump import State, Value

_STUB = '{"state":'
_QUEUE_PLACES = ("due", "ready", "held", "dead")


class View:
    """A state by keys: `collections["due:q"]` maps what `due:q/<id>` holds."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.collections: defaultdict[str, dict[str, Value]] = defaultdict(dict)
        self.records: set[str] = set()
        for name, value in state.items():
            key, slash, member = name.partition("/")
            if slash:
                self.collections[key][member] = value
            elif key.startswith("job:") and not _text(value).startswith(_STUB):
                self.records.add(key.removeprefix("job:"))

    def of(self, kind: str) -> Iterator[tuple[str, dict[str, Value]]]:
        """The collections of all queues of one kind, with the queue's name."""
        for key, members in self.collections.items():
            name, colon, queue = key.partition(":")
            if colon and name == kind:
                yield queue, members

    def places(self) -> dict[str, list[str]]:
        """For each id the places that hold it."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for kind in _QUEUE_PLACES:
            for queue, members in self.of(kind):
                for job_id in members:
                    found[job_id].append(f"{kind}:{queue}")
        for kind, word in (("dispatched", "stream"), ("runs", "running"), ("waiting", "waiting")):
            for job_id in self.collections[kind]:
                found[job_id].append(word)
        return found


def violations(state: State) -> list[str]:
    """What does not hold, in words; empty when all is well."""
    view = View(state)
    return [
        *_one_place(view),
        *_running(view),
        *_streams(view),
        *_leftovers(view),
        *_queues(view),
        *_journal(view),
    ]


def _one_place(view: View) -> Iterator[str]:
    places = view.places()
    for job_id in sorted(view.records | places.keys()):
        held = places.get(job_id, [])
        if job_id not in view.records:
            yield f"{job_id} has no record but is in {held}"
        elif len(held) != 1:
            yield f"{job_id} must be in one place, is in {held or 'none'}"


def _running(view: View) -> Iterator[str]:
    leases, runs = view.collections["running"].keys(), view.collections["runs"].keys()
    yield from (f"{job_id} has a lease but no run" for job_id in leases - runs)
    yield from (f"{job_id} has a run but no lease" for job_id in runs - leases)


def _streams(view: View) -> Iterator[str]:
    named = view.collections["dispatched"]
    found: defaultdict[str, set[str]] = defaultdict(set)  # two streams may use one entry id
    for queue, entries in view.of("stream"):
        listed = [name for name in entries if name != "pending"]
        depth = view.collections[f"flow:{queue}"].get("depth", "0")
        if depth != str(len(listed)):
            yield f"depth of {queue} is {depth}, its stream holds {len(listed)}"
        for name in listed:
            if isinstance(entry := entries[name], Entry):
                found[name].add(entry.id)
        pending = entries.get("pending", ())
        gone = set(map(str, pending)) - set(listed) if isinstance(pending, tuple) else set[str]()
        yield from (f"entry {name} of {queue} is pending but deleted" for name in gone)
    for job_id, entry_name in named.items():
        if job_id not in found[str(entry_name)]:
            there = sorted(found[str(entry_name)])
            yield f"dispatched names {entry_name} for {job_id}, which is {there}"


def _leftovers(view: View) -> Iterator[str]:
    runs = view.collections["runs"]
    for kind in ("cancels", "progress"):
        yield from (
            f"{kind} of {job_id}, not running"
            for job_id in view.collections[kind]
            if job_id not in runs
        )
    for job_id in view.collections["attempts"]:
        if job_id not in view.records:
            yield f"attempts of {job_id}, which has no record"
    for job_id in view.collections["finished"]:
        if job_id in view.records:
            yield f"tombstone of {job_id}, which has a record"


def _queues(view: View) -> Iterator[str]:
    earliest = view.collections["queues"]
    for queue, members in view.of("due"):
        first = min(float(str(score)) for score in members.values())
        if float(str(earliest.get(queue, "inf"))) > first:
            yield f"queues says {earliest.get(queue)} for {queue}, its first job is due at {first}"


def _journal(view: View) -> Iterator[str]:
    entries = sorted((int(seq), entry) for seq, entry in view.collections["journal"].items())
    for (before, first), (seq, second) in pairwise(entries):
        if seq != before + 1:
            yield f"journal goes from {before} to {seq}"
        if (
            isinstance(first, Journaled)
            and isinstance(second, Journaled)
            and second.prev != first.tag
        ):
            yield f"journal {seq} follows tag {first.tag}, says {second.prev}"
    meta = view.collections["meta"]
    last = entries[-1] if entries else None
    if last and (str(last[0]) != meta.get("seq") or _tag(last[1]) != meta.get("tag")):
        yield f"journal ends at {last[0]} {_tag(last[1])}, meta says {meta.get('seq')} {meta.get('tag')}"
    for seq, entry in entries:
        lines = entry.lines if isinstance(entry, Journaled) else ()
        repeated = [
            line
            for line, count in Counter(line.split(" ")[0] for line in lines).items()
            if count > 1
        ]
        if repeated:
            yield f"journal {seq} names {repeated} more than once"


def _tag(entry: Value) -> str:
    return entry.tag if isinstance(entry, Journaled) else str(entry)


def _text(value: Value) -> str:
    return value.value if isinstance(value, Expiring) else str(value)
