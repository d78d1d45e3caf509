"""How long calls on one partition had to wait, as a client sees it; under move."""

from __future__ import annotations

import random
import threading
from types import TracebackType
from typing import Self

from redjob.calls.jobs import locate
from redjob.clock import Clock
from redjob.errors import StoreUnavailable
from redjob.ids import new_id
from redjob.keys import PartitionKeys
from redjob.store.sync import SyncStore

_EVERY_S = 0.002


class PauseMeter:
    """Asks a partition for a job that is not there, all the time; a context manager.

    The script that answers needs keys that exist and keys that do not, as an enqueue does.
    """

    def __init__(self, store: SyncStore, part: PartitionKeys, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        job_id = new_id(clock.wall_ms(), part.slot, random.getrandbits(60))
        self._call = locate(part, "", job_id)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pause-meter", daemon=True)
        self.longest_s = 0.0
        self.began = clock.monotonic()  # of the longest pause

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        answered = self._clock.monotonic()
        while True:
            last = self._stop.is_set()  # look once more: the pause may not be over
            if self._answers():
                now = self._clock.monotonic()
                if now - answered > self.longest_s:
                    self.longest_s, self.began = now - answered, answered
                answered = now
            if last:
                return
            self._stop.wait(_EVERY_S)

    def _answers(self) -> bool:
        try:
            self._store.call(self._call, deadline_s=0.0)
        except StoreUnavailable:
            return False
        return True
