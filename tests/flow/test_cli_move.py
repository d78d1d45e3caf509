"""`redjob move` under load: nothing is lost, nothing runs twice, and the pause is told."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Literal

import pytest

from redjob.app import Redjob
from redjob.cli.root import DONE, FAILED, WRONG_USE
from redjob.clock import SystemClock
from redjob.config import SchedulerConfig, SweeperConfig, WorkerConfig
from redjob.context import current_job
from redjob.errors import RedjobError
from redjob.ids import slot_of
from redjob.keys import Keyspace
from redjob.scheduler import SchedulerNode
from redjob.store.aio import AsyncStore
from redjob.store.servers import Servers
from redjob.store.settings import settings_from_url
from redjob.store.slot_move import SlotMove, SlotNotMoved
from redjob.sweeper import SweeperNode
from redjob.worker import WorkerNode
from tests.flow.commands import Ran, redjob
from tests.flow.processes import process
from tests.flow.sweeping import staged
from tests.flow.working import until
from tests.support.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from redjob.keys import PartitionKeys
    from tests.support.cluster import ClusterNodes
    from tests.support.cluster_node import ClusterNode
    from tests.support.servers import OwnClusterFactory, OwnServerFactory, ProgramKind

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PARTITIONS = 4
# Valkey 9 moves a slot as a whole, Redis 7 key by key.
KINDS: list[ProgramKind] = ["valkey", "redis"]
WAYS: dict[ProgramKind, Literal["whole", "keys"]] = {"valkey": "whole", "redis": "keys"}


class Load:
    """Jobs that come all the time, now and later, and how often each has run."""

    def __init__(self, url: str, ns: str) -> None:
        self.app = Redjob(url, namespace=ns)
        self.accepted: set[str] = set()
        self.runs: Counter[str] = Counter()
        self.refused: list[str] = []
        self._enough = asyncio.Event()

        @self.app.task(queue="q", name="note")
        async def note(_size: str) -> None:
            self.runs[current_job().id] += 1

        self._note = note

    async def run(self) -> None:
        """Enqueue until told that it is enough."""
        number = 0
        while not self._enough.is_set():
            number += 1
            later_s = (0.0, 0.3, 2.0)[number % 3]
            try:
                bound = self._note.aenqueue_in(later_s, "x" * 200) if later_s else None
                job = await (bound or self._note.aenqueue("x" * 200))
            except RedjobError as exc:
                self.refused.append(str(exc))
            else:
                self.accepted.add(job.id)
            await asyncio.sleep(0.002)

    async def ended(self) -> bool:
        """Whether every job has run."""
        return self.accepted <= self.runs.keys()

    def stop(self) -> None:
        """Enqueue no more."""
        self._enough.set()


@asynccontextmanager
async def at_work(nodes: ClusterNodes, ns: str) -> AsyncGenerator[Load]:
    """A scheduler, a sweeper, a worker and their load; at the end all has run once, or it fails."""
    settings = settings_from_url(nodes.url)
    stores = [AsyncStore(settings, ns, partitions=PARTITIONS) for _ in range(2)]
    scheduler = SchedulerNode(stores[0], SchedulerConfig(), rng=Random(1))
    tasks = [asyncio.create_task(scheduler.run())]
    load = Load(nodes.url, ns)
    try:
        await asyncio.wait_for(scheduler.wait_ready(), 20)
        sweeper = SweeperNode(stores[1], SweeperConfig(every_s=0.2, scan_every_s=0.2))
        worker = WorkerNode(load.app, WorkerConfig(queues=("q",), concurrency=16))
        tasks += [asyncio.create_task(sweeper.run()), asyncio.create_task(worker.run())]
        enqueuing = [asyncio.create_task(load.run()) for _ in range(3)]
        await until(lambda: _has_run(load, 200))
        yield load
        seen = len(load.runs)
        await until(lambda: _has_run(load, seen + 200))  # it goes on afterwards
        load.stop()
        await asyncio.gather(*enqueuing)
        await until(load.ended)
        assert load.refused == []
        assert [job for job, count in load.runs.items() if count > 1] == []
        assert load.runs.keys() == load.accepted
    finally:
        load.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await load.app.aclose()
        for store in stores:
            await store.aclose()


async def _has_run(load: Load, count: int) -> bool:
    return len(load.runs) >= count


def a_move(nodes: ClusterNodes, ns: str, index: int) -> tuple[PartitionKeys, ClusterNode]:
    """A partition, and a primary that has it not."""
    part = Keyspace(ns, PARTITIONS).parts[index]
    source = nodes.primary_of(part.slot)
    return part, next(node for node in nodes.primaries() if node is not source)


def place(nodes: ClusterNodes, ns: str) -> tuple[str, ...]:
    return ("--redis-url", nodes.url, "--namespace", ns)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_partition_moves_under_load(
    own_cluster: OwnClusterFactory, ns: str, kind: ProgramKind
) -> None:
    nodes = own_cluster(kind)
    async with at_work(nodes, ns) as load:
        part, target = a_move(nodes, ns, 1)
        command = ("move", "1", "--to", target.address, *place(nodes, ns))
        ran: Ran = await asyncio.to_thread(redjob, *command, "--json")
        assert ran.code == DONE, ran
        told = ran.objects[0]
        assert told["moved"] is True
        assert told["way"] == WAYS[kind]
        assert told["to"] == target.address
        assert nodes.primary_of(part.slot) is target
        assert 0 < told["pause_ms"] <= told["checked_ms"]
        again = await asyncio.to_thread(redjob, *command)
        assert (again.code, f"is on {target.address} already" in again.out) == (DONE, True)
        # What was made since the move is there as well.
        seen = {job for job in load.accepted if slot_of(job) * PARTITIONS // 16384 == 1}
        await until(lambda: _more_of(load, seen))
        back = await asyncio.to_thread(redjob, "move", "1", "--to", told["from"], *place(nodes, ns))
        assert "calls waited" in back.out, back
    assert "slot" in back.out
    nodes.wait_healthy()


async def _more_of(load: Load, seen: set[str]) -> bool:
    return any(slot_of(job) * PARTITIONS // 16384 == 1 for job in load.runs.keys() - seen)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_killed_move_is_finished_by_the_next(
    own_cluster: OwnClusterFactory, ns: str, kind: ProgramKind
) -> None:
    nodes = own_cluster(kind)
    async with at_work(nodes, ns):
        part, target = a_move(nodes, ns, 2)
        source = nodes.primary_of(part.slot)
        command = ("move", "2", "--to", target.address, *place(nodes, ns), "--json")
        # Enough keys to be found in the middle of them.
        pipe = source.redis.pipeline(transaction=False)
        for number in range(30_000):
            pipe.set(f"other:{{{part.tag}}}:{number}", "x" * 500)
            pipe.xadd(f"other:{{{part.tag}}}:stream", {"doc": "x" * 500})
        await asyncio.to_thread(pipe.execute)
        await asyncio.to_thread(killed_in_the_middle, command, target, part.slot)
        ran = await asyncio.to_thread(redjob, *command)
        assert ran.code == DONE, ran
        assert nodes.primary_of(part.slot) is target
        assert source.command("CLUSTER", "COUNTKEYSINSLOT", part.slot) == 0
        assert target.command("CLUSTER", "COUNTKEYSINSLOT", part.slot) > 30_000
        assert target.redis.xlen(f"other:{{{part.tag}}}:stream") == 30_000
    nodes.wait_healthy()


def killed_in_the_middle(command: tuple[str, ...], target: ClusterNode, slot: int) -> None:
    """Start a move and kill it as soon as some of the keys are at the target."""
    with process(*command) as mover:
        wait_until(
            lambda: target.command("CLUSTER", "COUNTKEYSINSLOT", slot) > 100,
            within_s=20,
            what="the move has begun",
        )
        assert mover.end(signal.SIGKILL) == -signal.SIGKILL


@pytest.mark.parametrize("kind", KINDS)
async def test_a_cancelled_move_leaves_the_slot_where_it_was(
    own_cluster: OwnClusterFactory, ns: str, kind: ProgramKind
) -> None:
    nodes = own_cluster(kind)
    async with at_work(nodes, ns):
        part, target = a_move(nodes, ns, 3)
        source = nodes.primary_of(part.slot)
        cancel = ("move", "3", "--cancel", *place(nodes, ns))
        assert "is on no way" in (await asyncio.to_thread(redjob, *cancel)).out
        by_hand = nodes.slot_move(part.slot, target).begin()
        by_hand.migrate(*by_hand.keys()[:5])
        other = next(node for node in nodes.primaries() if node not in {source, target})
        for to in (other, source):
            refused = await asyncio.to_thread(
                redjob, "move", "3", "--to", to.address, *place(nodes, ns)
            )
            assert refused.code == FAILED
            assert f"is on its way to {target.address}" in refused.err
        ran = await asyncio.to_thread(redjob, *cancel, "--json")
        assert ran.code == DONE, ran
        assert ran.objects[0]["cancelled"] is True
        assert nodes.primary_of(part.slot) is source
        assert target.command("CLUSTER", "COUNTKEYSINSLOT", part.slot) == 0
        # Nothing moved yet: both ends are closed and that is all.
        nodes.slot_move(part.slot, target).begin()
        assert "is back on" in (await asyncio.to_thread(redjob, *cancel)).out
        for node in (source, target):
            assert "[" not in node.command("CLUSTER", "NODES")  # no end is open
        assert nodes.primary_of(part.slot) is source
    nodes.wait_healthy()


async def test_a_move_that_the_server_makes_is_cancelled_there(
    own_cluster: OwnClusterFactory, ns: str
) -> None:
    nodes = own_cluster("valkey", extra_args=("--enable-debug-command", "yes"))
    async with staged(nodes.url, ns, partitions=PARTITIONS):
        part, target = a_move(nodes, ns, 0)
        source = nodes.primary_of(part.slot)
        # It stays before its last step.
        source.command("DEBUG", "SLOTMIGRATION", "PREVENT-PAUSE", 1)
        source.command(
            "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", part.slot, part.slot, "NODE", target.node_id
        )
        ran = redjob("move", "0", "--cancel", *place(nodes, ns))
        assert ran.code == DONE, ran
        assert f"is back on {source.address}" in ran.out
        source.command("DEBUG", "SLOTMIGRATION", "PREVENT-PAUSE", 0)
        ran = redjob("move", "0", "--to", target.address, *place(nodes, ns), "--json")
        assert ran.objects[0]["way"] == "whole"
        assert ran.objects[0]["checked_ms"] is None  # there is no scheduler


async def test_what_cannot_be_moved_is_told(
    own_cluster: OwnClusterFactory, own_server: OwnServerFactory, ns: str
) -> None:
    nodes = own_cluster()
    async with staged(nodes.url, ns, partitions=PARTITIONS):
        replica = nodes.replicas_of(nodes.primaries()[0])[0]
        ran = redjob("move", "0", "--to", replica.address, *place(nodes, ns))
        assert ran.code == FAILED
        assert "is no primary that answers" in ran.err
        assert redjob("move", "9", "--to", "a:1", *place(nodes, ns)).code == WRONG_USE
        assert redjob("move", "1", *place(nodes, ns)).code == WRONG_USE
    server = own_server()
    ran = redjob("move", "0", "--to", "a:1", "--redis-url", server.url)
    assert ran.code == WRONG_USE
    assert "redis+cluster://" in ran.err


async def test_a_key_that_would_stop_its_server_is_not_sent(
    own_cluster: OwnClusterFactory, ns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = own_cluster("redis")
    async with staged(nodes.url, ns, partitions=PARTITIONS) as stage:
        part, target = a_move(nodes, ns, 0)
        await stage.enqueue(30, slot=part.slot, payload=b'{"x":"%s"}' % (b"x" * 1000))
        command = ("move", "0", "--to", target.address, *place(nodes, ns))
        monkeypatch.setattr("redjob.cli.move._LARGEST_KEY", 20_000)
        ran = redjob(*command)
        assert ran.code == FAILED
        assert "MiB: sending it would stop its server" in ran.err
        assert "[" not in target.command("CLUSTER", "NODES")
        monkeypatch.undo()
        assert redjob(*command).code == DONE


@pytest.mark.parametrize("replaced", ["source", "target"])
async def test_a_node_that_is_replaced_in_the_middle(
    own_cluster: OwnClusterFactory, ns: str, replaced: str
) -> None:
    """The replica knows of no move in Redis 7: the keys that have moved must not be left behind."""
    nodes = own_cluster("redis")
    part, target = a_move(nodes, ns, 0)
    source = nodes.primary_of(part.slot)
    for number in range(20):
        source.redis.set(f"other:{{{part.tag}}}:{number}", number)
    by_hand = nodes.slot_move(part.slot, target).begin()
    by_hand.migrate(*by_hand.keys()[:8])
    successor = nodes.fail_over(source if replaced == "source" else target)
    if replaced == "target":
        target = successor
    else:
        wait_until(lambda: not source.own_row().slots, within_s=10, what="the source knows")
    servers = Servers(settings_from_url(nodes.url))
    move = SlotMove(servers, part.slot, SystemClock())
    if replaced == "target":
        stranger = next(
            node for node in nodes.primaries() if node not in {target, nodes.primary_of(part.slot)}
        )
        with pytest.raises(SlotNotMoved, match="on its way"):
            move.begin(move.ends(stranger.address))
        with pytest.raises(SlotNotMoved, match="no primary any more"):
            move.cancel()
    else:
        # The new source made one of the keys anew: which one is right, a person must say.
        moved = target.command("CLUSTER", "GETKEYSINSLOT", part.slot, 1)[0]
        successor.redis.set(moved, "anew")
        with pytest.raises(SlotNotMoved, match="compare them"):
            move.finish(move.ends(target.address), "keys")
        successor.redis.delete(moved)
    move.finish(move.ends(target.address), "keys")
    servers.close()
    assert nodes.primary_of(part.slot) is target
    values = {int(target.redis.get(f"other:{{{part.tag}}}:{number}")) for number in range(20)}
    assert values == set(range(20))
