"""What all parts of one worker share."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from redjob.clock import Clock
from redjob.config import WorkerConfig
from redjob.keys import Keyspace
from redjob.store.aio import AsyncStore
from redjob.worker.counters import Counters


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where a worker works, under which name and by which settings."""

    store: AsyncStore
    keys: Keyspace
    worker: str
    config: WorkerConfig
    counters: Counters
    clock: Clock
    rng: Random

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues it serves, in the order of preference."""
        return self.config.queues

    @property
    def lease_ms(self) -> int:
        """How long a take or a heartbeat gives."""
        return int(self.config.lease_s * 1000)
