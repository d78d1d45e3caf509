"""The partitions of this process: held by lease, and open, that is fenced and worked on.

Open is a subset of held. Whoever finds that an open partition is not what it was closes it; what is
held but not open is the takeover's work. That is the only way back, whatever went wrong.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from redjob.errors import Fenced, Hold, JournalForked, NotReady, Rebuilding, RedjobError
from redjob.scheduler.outage import Outage
from redjob.scheduler.owner import Known, PartitionOwner

log = logging.getLogger("redjob.scheduler")

_CLOSING: tuple[tuple[type[RedjobError], str], ...] = (
    (Fenced, "fenced"),  # another owner is installed
    (Hold, "run_id_changed"),  # the server restarted or failed over
    (NotReady, "emptied"),  # meta is gone
    (JournalForked, "journal"),  # it went back, or was trimmed by somebody else
    (Rebuilding, "rebuilding"),
)


class Holdings:
    """Who is open, and what was known of those that were closed."""

    def __init__(
        self, outage: Outage, known: dict[int, Known], *, on_fenced: Callable[[int], None]
    ) -> None:
        self.opened: dict[int, PartitionOwner] = {}
        self.known = known
        self.held: frozenset[int] = frozenset()
        self.work = asyncio.Event()  # something is held and not open
        self.on_change: Callable[[], None] = lambda: None  # the set of open partitions is another
        self._outage = outage
        self._on_fenced = on_fenced

    @property
    def owners(self) -> list[PartitionOwner]:
        """The open partitions."""
        return list(self.opened.values())

    @property
    def missing(self) -> frozenset[int]:
        """Partitions that are held and wait to be taken over."""
        return self.held - self.opened.keys()

    def follow(self, held: frozenset[int], *, still_held: frozenset[int]) -> None:
        """Adopt what the lease holds on this server; the rest is closed at once.

        `still_held` is what the node holds on any server: what is in there has only moved.
        """
        if held == self.held:
            return
        lost = [owner for index, owner in self.opened.items() if index not in held]
        if lost:
            log.info("partitions_closed partitions=%s cause=lease", _list(lost))
        for owner in lost:
            self._close(owner)
            index = owner.part.index
            if index not in still_held and not self._outage.is_away:
                del self.known[index]  # handed over: what becomes of it, the next owner tells
        self.held = held
        self._tell()

    def open(self, owner: PartitionOwner) -> bool:
        """Work on a partition from now on, unless its lease has gone meanwhile."""
        if owner.part.index not in self.held:
            return False
        self.opened[owner.part.index] = owner
        self.on_change()
        return True

    def refused(self, owner: PartitionOwner, exc: RedjobError) -> None:
        """Draw the consequences of a refusal that a call on a partition met."""
        cause = next((word for kind, word in _CLOSING if isinstance(exc, kind)), None)
        if cause is None:
            self._outage.failed(exc)
        elif owner.is_open:
            self.close(owner, cause)

    def close(self, owner: PartitionOwner, cause: str) -> None:
        """Stop working on a partition, and have it taken over again if it is still held."""
        if not owner.is_open:
            return
        index = owner.part.index
        self._outage.say(f"partition_closed partition={index}", cause)
        self._close(owner)
        if cause == "fenced":  # not to be taken back before the quorum keys have been asked again
            self._on_fenced(index)
        self._tell()

    def close_all(self) -> None:
        """Stop working on everything: Redis is away, and nothing that was read before holds."""
        for owner in self.owners:
            self._close(owner)
        self._tell()

    def _close(self, owner: PartitionOwner) -> None:
        owner.is_open = False
        del self.opened[owner.part.index]
        # What an earlier close left and nobody has told of yet counts: it knew more.
        self.known.setdefault(owner.part.index, owner.remember())

    def _tell(self) -> None:
        if self.missing:
            self.work.set()
        self.on_change()


def _list(owners: list[PartitionOwner]) -> str:
    return ",".join(str(owner.part.index) for owner in owners)
