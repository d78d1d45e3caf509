"""`redjob move`: takes a partition to another primary of a cluster, and says how long it stood still."""

from __future__ import annotations

from typing import NamedTuple

import click

from redjob.calls.call import Arg
from redjob.calls.overview import partition_facts
from redjob.calls.reads import Query, queue_names
from redjob.cli.options import connection_options, example, json_option, store_of
from redjob.cli.output import print_json
from redjob.cli.pause import PauseMeter
from redjob.clock import SystemClock
from redjob.config import Connection
from redjob.keys import PartitionKeys
from redjob.store.facts import facts_query
from redjob.store.servers import Servers
from redjob.store.slot_move import REPLY_S, Ends, SlotMove, SlotNotMoved, Way
from redjob.store.sync import SyncStore

_CHECKED_WITHIN_S = 10.0
_LOOK_S = 0.005
# Sending one key stops the source: for more than about a second, the cluster would replace it.
_LARGEST_KEY = 128 << 20


class Moved(NamedTuple):
    """What a move came to. `checked_ms`: until an owner let jobs start again, None: none did in time."""

    way: Way
    keys: int
    took_ms: int
    pause_ms: int
    checked_ms: int | None


@click.command(epilog=example("redjob move 3 --to 10.0.0.2:6379 --redis-url redis+cluster://…"))
@click.argument("partition", type=click.IntRange(min=0))
@click.option("--to", metavar="HOST:PORT", help="The primary that is to have it.")
@click.option("--cancel", is_flag=True, help="Put it back where it was.")
@json_option
@connection_options
def move(
    connection: Connection, /, *, partition: int, to: str | None, cancel: bool, as_json: bool
) -> None:
    """Move a partition to another primary of a cluster; run again after a crash, it goes on.

    All keys of the partition's slot move, those of other namespaces too. Calls wait meanwhile.
    """
    if (to is None) != cancel:
        raise click.UsageError("pass --to HOST:PORT, or --cancel")
    store = store_of(connection)
    if store.is_one_server:
        raise click.UsageError("only a cluster has slots to move: use redis+cluster://")
    parts = store.keys.parts
    if partition >= len(parts):
        raise click.UsageError(f"there are partitions 0 to {len(parts) - 1}")
    part = parts[partition]
    servers = Servers(store.settings, reply_s=REPLY_S)
    slot_move = SlotMove(servers, part.slot, SystemClock())
    try:
        if to is None:
            _cancel(slot_move, part, as_json=as_json)
        else:
            _move(store, slot_move, part, to, as_json=as_json)
    finally:
        servers.close()


def _cancel(slot_move: SlotMove, part: PartitionKeys, *, as_json: bool) -> None:
    kept_by = slot_move.cancel()
    at = str((kept_by or slot_move.owner()).address)
    if as_json:
        print_json(
            {"partition": part.index, "slot": part.slot, "cancelled": bool(kept_by), "at": at}
        )
    elif kept_by:
        click.echo(f"partition {part.index} (slot {part.slot}) is back on {at}")
    else:
        click.echo(f"partition {part.index} (slot {part.slot}) is on no way: it is on {at}")


def _move(
    store: SyncStore,
    slot_move: SlotMove,
    part: PartitionKeys,
    to: str,
    *,
    as_json: bool,
) -> None:
    ends = slot_move.ends(to)
    begun = slot_move.is_under_way(ends)
    source, target = (str(node.address) for node in ends[:2])
    moved: Moved | None = None
    if ends.source.id == ends.target.id:
        slot_move.settle(ends)  # an earlier run may have ended before all were told
    else:
        moved = _measured(store, slot_move, part, ends, begun=begun)
    if as_json:
        told = {"partition": part.index, "slot": part.slot, "from": source, "to": target}
        print_json({**told, "moved": bool(moved), **(moved._asdict() if moved else {})})
    else:
        click.echo(f"partition {part.index} (slot {part.slot}) {_said(source, target, moved)}")


def _said(source: str, target: str, moved: Moved | None) -> str:
    if moved is None:
        return f"is on {target} already"
    how = "as a whole" if moved.way == "whole" else f"by {moved.keys} keys"
    starts = (
        f"jobs started again after {moved.checked_ms} ms"
        if moved.checked_ms is not None
        else "no scheduler has checked it there yet, so no job starts: see `redjob doctor`"
    )
    return (
        f"moved from {source} to {target} {how} in {moved.took_ms} ms: "
        f"calls waited {moved.pause_ms} ms at most, {starts}"
    )


def _measured(
    store: SyncStore, slot_move: SlotMove, part: PartitionKeys, ends: Ends, *, begun: bool
) -> Moved:
    clock = SystemClock()
    began = clock.monotonic()
    with PauseMeter(store, part, clock) as meter:
        way = slot_move.begin(ends)
        if way == "keys" and not begun:
            _refuse_large_keys(store, part)
        slot_move.finish(ends, way)
    took_s = clock.monotonic() - began
    checked_ms: int | None = None
    deadline = clock.monotonic() + _CHECKED_WITHIN_S
    while clock.monotonic() < deadline:
        if _is_checked(store, part):
            checked_ms = round((clock.monotonic() - meter.began) * 1000)
            break
        clock.sleep(_LOOK_S)
    return Moved(
        way, slot_move.keys, round(took_s * 1000), round(meter.longest_s * 1000), checked_ms
    )


def _is_checked(store: SyncStore, part: PartitionKeys) -> bool:
    """Whether an owner has let the new server go on: until then its scripts answer HOLD."""
    facts = store.query(partition_facts(part))
    return facts is not None and facts.run_id == store.query(facts_query(part)).run_id


def _refuse_large_keys(store: SyncStore, part: PartitionKeys) -> None:
    """Raise SlotNotMoved where one key alone would stop the source for too long."""
    queues = [part.queue(name) for name in store.query(queue_names(part))]
    keys = [part.journal, part.dispatched, part.runs, part.attempts, part.finished, part.done]
    for queue in queues:
        keys += [queue.due, queue.ready, queue.stream, queue.dead]
    commands: list[tuple[Arg, ...]] = [("MEMORY", "USAGE", key) for key in keys]
    sizes = store.query(Query(part, commands, lambda raw: [size or 0 for size in raw]))
    size, key = max(zip(sizes, keys, strict=True))
    if size > _LARGEST_KEY:
        raise SlotNotMoved(
            f"{key} takes {size >> 20} MiB: sending it would stop its server for so long that the "
            "cluster replaces it; let the queue drain first, or use a server that moves slots itself"
        )
