"""What one process of a chaos run is told: a JSON object on its command line; under runner."""

from __future__ import annotations

import msgspec

from redjob.config import SchedulerConfig, SweeperConfig, WorkerConfig
from redjob.validate import Ack


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run is and how quick it is. Times in `_s` are seconds, in `_ms` milliseconds.

    The leases are short, so that a run of a minute sees many of them end. `plant` names a bug of
    `tests.support.plants`, `clock_shift_ms` puts the process' own wall clock off,
    `ack` is what the client of a scene asks for.
    """

    url: str
    namespace: str
    effects: str
    queues: tuple[str, ...] = ("q",)
    concurrency: int = 16
    lease_s: float = 2.0
    heartbeat_s: float = 0.5
    stop_grace_s: float = 2.0
    sweep_every_s: float = 0.2
    scan_every_s: float = 1.0
    trim_every_s: float = 1.0
    tombstone_keep_ms: int = 600_000
    depth_limit: str = "10000"
    allow_eviction: bool = False
    plant: str = ""
    clock_shift_ms: int = 0
    ack: Ack = "memory"

    def worker(self) -> WorkerConfig:
        """The settings of a worker."""
        return WorkerConfig(
            queues=self.queues,
            concurrency=self.concurrency,
            lease_s=self.lease_s,
            heartbeat_s=self.heartbeat_s,
            stop_grace_s=self.stop_grace_s,
        )

    def scheduler(self) -> SchedulerConfig:
        """The settings of a scheduler."""
        return SchedulerConfig(
            trim_every_s=self.trim_every_s,
            tombstone_keep_ms=self.tombstone_keep_ms,
            depth_limit=self.depth_limit,
            grace_ms=round(self.lease_s * 1000),
        )

    def sweeper(self) -> SweeperConfig:
        """The settings of a sweeper."""
        return SweeperConfig(
            every_s=self.sweep_every_s,
            scan_every_s=self.scan_every_s,
            lease_s=self.lease_s,
            never_begun_s=3 * self.lease_s,
        )
