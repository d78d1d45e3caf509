"""`redjob move` under load: nothing is lost, nothing runs twice, and the pause is told."""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from redjob.cli.root import DONE, FAILED, WRONG_USE
from redjob.clock import SystemClock
from redjob.ids import slot_of
from redjob.store.servers import Servers
from redjob.store.settings import settings_from_url
from redjob.store.slot_move import SlotMove, SlotNotMoved
from tests.flow.commands import Ran, redjob
from tests.flow.moving import PARTITIONS, a_move, at_work, more_of, place
from tests.flow.processes import process
from tests.flow.sweeping import staged
from tests.flow.test_rights import rule
from tests.flow.working import until
from tests.support.processes import wait_until

if TYPE_CHECKING:
    from tests.support.cluster_node import ClusterNode
    from tests.support.servers import OwnClusterFactory, OwnServerFactory, ProgramKind

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy" / "redis"
GUIDE = ROOT / "docs" / "how-to" / "move-a-partition.md"
# Valkey 9 moves a slot as a whole, Redis 7 key by key.
KINDS: list[ProgramKind] = ["valkey", "redis"]
WAYS: dict[ProgramKind, Literal["whole", "keys"]] = {"valkey": "whole", "redis": "keys"}


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
        await until(lambda: more_of(load, seen))
        back = await asyncio.to_thread(redjob, "move", "1", "--to", told["from"], *place(nodes, ns))
        assert "calls waited" in back.out, back
    assert "slot" in back.out
    nodes.wait_healthy()


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


@pytest.mark.parametrize("kind", KINDS)
async def test_it_moves_as_the_recommended_users(
    own_cluster: OwnClusterFactory, ns: str, kind: ProgramKind
) -> None:
    nodes = own_cluster(kind)
    users = (DEPLOY / "users.acl").read_text()
    for node in nodes.nodes:
        for line in users.splitlines()[1:]:  # default stays on: the test itself needs it
            node.command("ACL", "SETUSER", *line.split()[1:])
        node.redis.config_set("masteruser", "replica", "masterauth", "change-me-replica")
        # Whoever sends a slot must come in at the other end as somebody.
        denied = "-cluster|syncslots" if kind == "valkey" else "-restore-asking"
        node.command("ACL", "SETUSER", "default", denied)
    async with staged(nodes.url, ns, partitions=PARTITIONS) as stage:
        part, target = a_move(nodes, ns, 0)
        await stage.enqueue(30, slot=part.slot)
        url = nodes.url.replace("://", "://admin:change-me-admin@")
        command = (
            *("move", "0", "--to", target.address, "--json"),
            *("--redis-url", url, "--namespace", ns),
        )
        if kind == "valkey":
            ran = redjob(*command)
            assert ran.code == FAILED
            assert "cluster|syncslots" in ran.err
            more = re.search(r"add to it:\n# +([^\n]+)\n", (DEPLOY / "tls.conf").read_text())
            assert more is not None
            for node in nodes.nodes:
                node.command("ACL", "SETUSER", "replica", *more[1].split())
        ran = redjob(*command)
        assert ran.code == DONE, ran
        assert ran.objects[0]["way"] == WAYS[kind]
        assert target.redis.xlen(part.queue("q").stream) == 30
        # The rights that the documentation names are enough, too.
        rights = re.search(r"needs `([^`]+)` and all keys", GUIDE.read_text())
        assert rights is not None
        for node in nodes.nodes:
            node.command(*rule(), *rights[1].split(), "allkeys")
        back = redjob(
            *("move", "0", "--to", ran.objects[0]["from"], "--namespace", ns),
            *("--redis-url", nodes.url.replace("://", "://redjob:secret@")),
        )
        assert back.code == DONE, back
        refused = [entry for entry in target.redis.acl_log() if entry["username"] == "redjob"]
        assert {entry["object"] for entry in refused} <= {"client|setinfo"}


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
    replaced_node = source if replaced == "source" else target
    successor = nodes.fail_over(replaced_node)
    # wait_healthy would wait in vain: of the open slot the target believes no gossip.
    wait_until(
        lambda: all(agrees(node, replaced_node, successor) for node in nodes.nodes),
        within_s=10,
        what="all know who is a primary",
    )
    if replaced == "target":
        target = successor
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
        for _ in range(2):  # the second run knows of it, too
            with pytest.raises(SlotNotMoved, match="compare them"):
                move.finish(move.ends(target.address), "keys")
        successor.redis.delete(moved)
    move.finish(move.ends(target.address), "keys")
    servers.close()
    assert nodes.primary_of(part.slot) is target
    values = {int(target.redis.get(f"other:{{{part.tag}}}:{number}")) for number in range(20)}
    assert values == set(range(20))


def agrees(node: ClusterNode, replaced: ClusterNode, successor: ClusterNode) -> bool:
    """Whether a node knows of a failover."""
    flags = {row.node_id: row.flags for row in node.rows()}
    return "slave" in flags[replaced.node_id] and "master" in flags[successor.node_id]
