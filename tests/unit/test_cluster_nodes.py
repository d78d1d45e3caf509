"""Reading what the nodes of a cluster say of themselves."""

from __future__ import annotations

from redjob.store.cluster_nodes import read_nodes
from redjob.store.routes import Address

A, B, C = "a" * 40, "b" * 40, "c" * 40
TEXT = f"""\
{A} 10.0.0.1:7000@17000,one.example,,shard-id=x myself,master - 0 0 3 connected 0-99 101 [7->-{B}] [8-<-{C}]
{B} ::1:7001@17001 master - 0 1 4 connected 200-300
{C} 10.0.0.3:7002@17002,three.example slave {A} 0 1 3 connected
{"d" * 40} :0@0 master,noaddr - 0 1 5 disconnected 400
"""


def test_every_line_is_read() -> None:
    one, two, three, gone = read_nodes(TEXT, Address("asked", 7000))
    assert one.address == Address("10.0.0.1", 7000)
    assert [one.has(slot) for slot in (0, 99, 100, 101)] == [True, True, False, True]
    assert (one.migrating, one.importing) == ({7: B}, {8: C})
    assert one.is_named("10.0.0.1:7000")
    assert one.is_named("one.example:7000")
    assert not one.is_named("three.example:7000")
    assert two.address == Address("::1", 7001)
    assert two.is_named("[::1]:7001")
    assert two.epoch == 4
    assert three.primary_id == A
    assert not three.is_primary
    assert not gone.is_primary


def test_a_node_that_does_not_know_its_address_is_the_one_that_was_asked() -> None:
    (one,) = read_nodes(
        f"{A} :7000@17000 myself,master - 0 0 1 connected 5", Address("asked", 7000)
    )
    assert one.address == Address("asked", 7000)
    assert one.has(5)
