"""The account of one step of the sweeper: what it returns, and what the tests look at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Swept:
    """How many jobs a step moved, and how many keys it mended; `forgotten` counts tenants of queues.

    `graced` counts partitions in which workers were given time to be heard, `held` those that wait
    for an owner to check a restarted server.
    """

    reclaimed: int = 0
    died: int = 0
    cancelled: int = 0
    fired: int = 0
    requeued: int = 0
    lost: int = 0
    restored: int = 0
    purged: int = 0
    settled: int = 0
    recounted: int = 0
    forgotten: int = 0
    graced: int = 0
    held: int = 0
