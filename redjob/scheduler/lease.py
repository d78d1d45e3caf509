"""Who owns which partition: one node's membership and leases at the quorum keys, Redlock style.

Pure decisions (`merge`, `counting`, `plan`) and a thin shell around them (`Lease`), whose I/O is `Quorum`. The package's
docstring has the whole picture: what a lease promises, and what only the fence does.
"""

from __future__ import annotations

import logging
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

from redjob.calls.owner import Renewed
from redjob.clock import Clock
from redjob.config import SchedulerConfig
from redjob.partitions import rendezvous

log = logging.getLogger("redjob.scheduler")


@dataclass(frozen=True, slots=True)
class View:
    """What a majority of the quorum keys says: live nodes with their age in ms, and the leases."""

    nodes: dict[str, int] = field(default_factory=dict[str, int])
    granted: frozenset[int] = frozenset()
    others: dict[int, str] = field(default_factory=dict[int, str])


@dataclass(frozen=True, slots=True)
class Plan:
    """What the next renewal asks for: partitions to take or keep, and partitions to give up."""

    want: frozenset[int]
    drop: frozenset[int]


def merge(replies: Sequence[Renewed | None]) -> View | None:
    """Join the answers of the quorum keys; None if no majority of them answered.

    What counts is what a majority of all keys says, so a key that is away or was emptied counts
    against. A node's age is the median, which one server with a wrong clock cannot move.
    """
    answers = [reply for reply in replies if reply is not None]
    least = len(replies) // 2 + 1
    if len(answers) < least:
        return None
    ages: dict[str, list[int]] = {}
    for answer in answers:
        for node, since_ms in answer.nodes.items():
            ages.setdefault(node, []).append(answer.now_ms - since_ms)
    granted = Counter(index for answer in answers for index in answer.granted)
    others = Counter(pair for answer in answers for pair in answer.others.items())
    return View(
        {node: statistics.median_low(found) for node, found in ages.items() if len(found) >= least},
        frozenset(index for index, votes in granted.items() if votes >= least),
        {index: node for (index, node), votes in others.items() if votes >= least},
    )


def counting(nodes: Mapping[str, int], *, join_delay_ms: int, together_ms: int) -> tuple[str, ...]:
    """Return the nodes that partitions are spread over, sorted: those who have been there for a while.

    A joiner waits `join_delay_ms`, so that one that crashes at once moves nothing. Nodes that came
    within `together_ms` of the oldest need not: after a restart of Redis, which forgets its members,
    or at a first start, all begin together and there is nobody to disturb.
    """
    oldest_ms = max(nodes.values(), default=0)
    least_ms = min(join_delay_ms, oldest_ms - together_ms)
    return tuple(sorted(node for node, age_ms in nodes.items() if age_ms >= least_ms))


@lru_cache(maxsize=64)
def shares(nodes: tuple[str, ...], partitions: int) -> tuple[str, ...]:
    """Return for each partition the node that should own it."""
    return tuple(rendezvous(f"p{index}", nodes) for index in range(partitions))


def plan(me: str, nodes: tuple[str, ...], held: frozenset[int], partitions: int) -> Plan:
    """Return what `me` asks for when partitions are spread over `nodes`.

    It asks for everything that should be its own, also while another still holds it: the key grants
    it as soon as that one drops it or ends. What it should not hold it drops.
    """
    owners = shares(nodes, partitions) if nodes else ()
    want = frozenset(index for index, owner in enumerate(owners) if owner == me)
    return Plan(want, held - want)


class Ballot(Protocol):
    """Asks the quorum keys; `redjob.scheduler.quorum.QuorumKeys` does it for real."""

    async def ask(
        self, *, ttl_ms: int, want: frozenset[int], drop: frozenset[int], within_s: float
    ) -> list[Renewed | None]:
        """Send one renewal to every key; None stands for a key that gave no answer in time."""
        ...


class Lease:
    """This node's leases: `held` may be relied on until `trusted_until` (monotonic seconds).

    `on_change` is called whenever `held` has changed; partitions that left it must not be worked
    on any more when that call returns.
    """

    def __init__(
        self,
        node: str,
        ballot: Ballot,
        clock: Clock,
        config: SchedulerConfig,
        *,
        partitions: int,
        on_change: Callable[[], None],
    ) -> None:
        self.node = node
        self.held: frozenset[int] = frozenset()
        self.nodes: tuple[str, ...] = ()
        self.trusted_until = float("-inf")
        self.answered = False  # the last beat was, by a majority
        self.settled = False  # and left nothing to ask for
        self._ballot = ballot
        self._clock = clock
        self._config = config
        self._partitions = partitions
        self._on_change = on_change
        self._view: View | None = None  # None: others are not judged by what was seen last
        self._last_start: float | None = None
        self._last_age_ms = 0

    async def beat(self) -> bool:
        """Renew once; return whether the answer calls for another beat at once."""
        start = self._clock.monotonic()
        late = self._was_late(start)
        wanted = self._next_plan()
        if wanted.drop:  # first stop working on them, then let them go
            self._hold(self.held - wanted.drop)
        ttl_s = self._config.lease_ttl_ms / 1000
        trust_left_s = self.trusted_until - start
        replies = await self._ballot.ask(
            ttl_ms=self._config.lease_ttl_ms,
            want=wanted.want,
            drop=wanted.drop,
            within_s=min(ttl_s, trust_left_s) if trust_left_s > 0 else ttl_s,
        )
        view = merge(replies)
        self.answered = view is not None
        if view is None:
            self.settled = False
            self.check_trust()
            return False
        # Counted from before the request: the key's TTL began later than that, whatever the delay.
        self.trusted_until = start + ttl_s - self._config.margin_ms / 1000
        return self._follow(view, late=late, asked=wanted.want)

    def check_trust(self) -> None:
        """Let go of everything when no renewal came through in time."""
        if self.held and self._clock.monotonic() >= self.trusted_until:
            log.warning(
                "lease_lost node=%s partitions=%d cause=no_answer", self.node, len(self.held)
            )
            self._hold(frozenset())

    def disown(self, index: int) -> None:
        """Let go of a partition whose fence another node has replaced, until the next beat says more."""
        self._hold(self.held - {index})

    async def leave(self, *, within_s: float) -> None:
        """Give up membership and all leases, so that others need not wait for them to end."""
        held = self.held
        self._hold(frozenset())
        await self._ballot.ask(ttl_ms=0, want=frozenset(), drop=held, within_s=within_s)

    def _was_late(self, start: float) -> bool:
        """Whether this process itself was away: stopped, suspended, or starved of CPU."""
        last, self._last_start = self._last_start, start
        allowed_s = self._config.renew_every_s + self._config.lease_ttl_ms / 2000
        return last is not None and start - last > allowed_s

    def _next_plan(self) -> Plan:
        if self._view is None:
            return Plan(self.held, frozenset())
        return plan(self.node, self.nodes, self.held, self._partitions)

    def _follow(self, view: View, *, late: bool, asked: frozenset[int]) -> bool:
        age_ms = view.nodes.get(self.node, 0)
        forgotten, self._last_age_ms = age_ms < self._last_age_ms, age_ms
        nodes = counting(
            view.nodes,
            join_delay_ms=self._config.join_delay_ms,
            together_ms=self._config.lease_ttl_ms // 2,
        )
        # Who was away, or whose keys forgot everybody, sees others missing that only had no time to
        # renew: one more beat, and those that live are there again.
        self._view = None if late or forgotten else view
        if nodes != self.nodes and self._view:
            log.info(
                "members node=%s counting=%d present=%d", self.node, len(nodes), len(view.nodes)
            )
            self.nodes = nodes
        self._hold(view.granted & asked)
        following = self._next_plan()
        free = following.want - self.held - view.others.keys()
        again = bool(free or following.drop)
        self.settled = self._view is not None and not again
        return again

    def _hold(self, held: frozenset[int]) -> None:
        if held != self.held:
            self.held = held
            self._on_change()
