"""Which server a slot's commands go to: one server, the primary that Sentinels name, or a cluster.

Pure: a store asks with `question` at one of `candidates` and hands the answer to `learn`; what it
meets on the way (a redirection, a server that is gone) it tells with `moved` and `failed`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from redjob.calls.call import Arg
from redjob.errors import ServerUnsuitable
from redjob.partitions import SLOTS


class Address(NamedTuple):
    """A server, by the name or number that it is connected by."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


HOME = Address("", 0)  # the one server that the settings name


class Routes(Protocol):
    """What a store knows about where things are."""

    question: tuple[Arg, ...]
    unknown: str  # what an answer of no use means
    stale: bool  # ask before the next command

    @property
    def primaries(self) -> list[Address]:
        """Every server that holds jobs, as far as is known."""
        ...

    def candidates(self) -> list[Address]:
        """Whom to ask, in this order, until one answers."""
        ...

    def learn(self, asked: Address, answer: Any) -> bool:
        """Take in an answer; return whether it was of any use."""
        ...

    def of(self, slot: int | None) -> Address | None:
        """The server of a slot (None: of any); None where nobody is known to have it."""
        ...

    def moved(self, slot: int, address: Address) -> None:
        """Take in a redirection."""
        ...

    def failed(self) -> None:
        """A server was not there, or is not what it was."""
        ...


class OneServer:
    """A server by itself: always there as far as routing goes."""

    question: tuple[Arg, ...] = ()
    unknown = ""
    stale = False
    primaries = [HOME]  # noqa: RUF012 - never changed

    def candidates(self) -> list[Address]:
        """Nobody needs to be asked."""
        return []

    def learn(self, asked: Address, answer: Any) -> bool:
        """Nothing is asked."""
        del asked, answer
        return True

    def of(self, slot: int | None) -> Address:
        """The same for all."""
        del slot
        return HOME

    def moved(self, slot: int, address: Address) -> None:
        """Say that the URL is at fault. Raises ServerUnsuitable."""
        raise ServerUnsuitable(
            f"the server is a node of a cluster (slot {slot} is at {address}); "
            "use redis+cluster:// in the URL"
        )

    def failed(self) -> None:
        """Connecting again is all that can be done."""


class SentinelRoutes:
    """The primary that the Sentinels name; asked again whenever it fails or turns out a replica."""

    def __init__(self, sentinels: Sequence[Address], service: str, rng: random.Random) -> None:
        self.question: tuple[Arg, ...] = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service)
        self.unknown = f"it watches no {service!r}"
        self.stale = True
        self._sentinels = list(sentinels)
        self._rng = rng
        self._primary: Address | None = None

    @property
    def primaries(self) -> list[Address]:
        """The one that was named last."""
        return [self._primary] if self._primary else []

    def candidates(self) -> list[Address]:
        """All Sentinels, in another order each time."""
        return self._rng.sample(self._sentinels, len(self._sentinels))

    def learn(self, asked: Address, answer: Any) -> bool:
        """Take in host and port; None from a Sentinel that does not know the service."""
        del asked
        if not answer:
            return False
        host, port = answer
        self._primary = Address(_text(host), int(port))
        self.stale = False
        return True

    def of(self, slot: int | None) -> Address | None:
        """The primary, whatever the slot."""
        del slot
        return self._primary

    def moved(self, slot: int, address: Address) -> None:
        """Sentinels redirect nobody."""

    def failed(self) -> None:
        """Ask before the next command."""
        self.stale = True


class ClusterRoutes:
    """A cluster's map of slots. The servers of the URL are asked again by name when all else is gone."""

    question: tuple[Arg, ...] = ("CLUSTER", "SLOTS")
    unknown = "it has no slots and knows of none"

    def __init__(self, seeds: Sequence[Address], rng: random.Random) -> None:
        self.stale = True
        self._seeds = list(seeds)
        self._rng = rng
        self._map: list[Address | None] = [None] * SLOTS
        self._primaries: list[Address] = []

    @property
    def primaries(self) -> list[Address]:
        """The primaries that have slots."""
        return list(self._primaries)

    def candidates(self) -> list[Address]:
        """The known primaries in another order each time, then the servers of the URL."""
        known = self._rng.sample(self._primaries, len(self._primaries))
        return [*known, *(seed for seed in self._seeds if seed not in known)]

    def learn(self, asked: Address, answer: Any) -> bool:
        """Take in CLUSTER SLOTS; an empty one is from a node that has forgotten its cluster."""
        if not answer:
            return False
        found: list[Address | None] = [None] * SLOTS
        for first, last, (host, port, *_), *_ in answer:
            # A node that does not know its own name leaves it out: it is the one that was asked.
            address = Address(_text(host) or asked.host, int(port))
            found[first : last + 1] = [address] * (last + 1 - first)
        self._map = found
        self._primaries = sorted({address for address in found if address})
        self.stale = False
        return True

    def of(self, slot: int | None) -> Address | None:
        """The primary of a slot; of no slot: the first one."""
        if slot is not None:
            return self._map[slot]
        return self._primaries[0] if self._primaries else None

    def moved(self, slot: int, address: Address) -> None:
        """Believe it at once, and read the whole map soon: seldom does one slot move alone."""
        self._map[slot] = address
        if address not in self._primaries:
            self._primaries = sorted([*self._primaries, address])
        self.stale = True

    def failed(self) -> None:
        """Read the map before the next command."""
        self.stale = True


def routes_for(topology: str, seeds: Sequence[Address], service: str, rng: random.Random) -> Routes:
    """Return the routes of a kind of installation, knowing nothing yet."""
    if topology == "cluster":
        return ClusterRoutes(seeds, rng)
    if topology == "sentinel":
        return SentinelRoutes(seeds, service, rng)
    return OneServer()


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")
