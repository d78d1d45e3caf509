"""Held, open, closed: what is remembered of a partition until somebody has told what it lost."""

from __future__ import annotations

from random import Random

from redjob.calls.call import Position
from redjob.calls.owner import Fence, Installed
from redjob.keys import Keyspace
from redjob.scheduler.holdings import Holdings
from redjob.scheduler.outage import Outage
from redjob.scheduler.owner import Known, PartitionOwner
from redjob.testing import ManualClock

PARTS = Keyspace("t", 2).parts


class Stage:
    """Holdings of two partitions, and who was disowned."""

    def __init__(self) -> None:
        self.known: dict[int, Known] = {}
        self.disowned: list[int] = []
        outage = Outage(ManualClock(), Random(1), on_away=lambda: None)
        self.holdings = Holdings(outage, self.known, on_fenced=self.disowned.append)
        self.hold(0, 1)

    def hold(self, *indexes: int, elsewhere: int | None = None) -> None:
        others = frozenset[int]() if elsewhere is None else frozenset({elsewhere})
        held = frozenset(indexes)
        self.holdings.follow(held, still_held=held | others)

    def open(self, index: int, *, seq: int) -> PartitionOwner:
        installed = Installed(Position(seq, 0, 0), "inc", "run", f"t{seq}")
        owner = PartitionOwner(PARTS[index], Fence(1, "n"), installed)
        assert self.holdings.open(owner)
        return owner


def test_what_is_known_outlives_a_second_close_before_it_was_reported() -> None:
    stage = Stage()
    stage.open(0, seq=100)
    stage.holdings.close_all()
    stage.open(0, seq=80)  # the server came back with less
    stage.holdings.close_all()
    assert (stage.known[0].seq, stage.known[0].tag) == (100, "t100")


def test_what_is_known_goes_along_to_another_server_and_is_left_to_another_node() -> None:
    stage = Stage()
    stage.open(0, seq=7)
    stage.open(1, seq=9)
    stage.hold(elsewhere=0)
    assert stage.known.keys() == {0}
    assert stage.holdings.owners == []


def test_what_is_held_and_not_open_is_to_be_opened() -> None:
    stage = Stage()
    owner = stage.open(0, seq=1)
    assert stage.holdings.missing == {1}
    stage.holdings.close(owner, "fenced")
    assert stage.holdings.missing == {0, 1}
    assert stage.disowned == [0]
    stage.hold(1)
    assert stage.holdings.missing == {1}
    assert not stage.holdings.open(owner)
