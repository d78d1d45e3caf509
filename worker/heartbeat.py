"""Keeps the leases of long attempts; stands beside run and finish.

A thread with a connection of its own, so that a blocked event loop loses nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from threading import Event, Thread

from redjob.calls.work import Beat, heartbeat
from redjob.errors import NotReady, Rebuilding, RedjobError, StoreUnavailable
from redjob.ids import new_token
from redjob.keys import PartitionKeys
from redjob.store.sync import SyncStore
from redjob.worker.attempt import Attempt, Cause
from redjob.worker.outcome import checkpointed
from redjob.worker.workplace import Workplace

log = logging.getLogger("redjob.worker")

MOST = 200  # attempts a call
_GAP_S = 0.1  # between two rounds that progress or checkpoints ask for
_LONGEST_WAIT_S = 1.0
_DEADLINE_S = 3.0  # of one call: beats that fail are due again in the next round
_SAY_EVERY_S = 5.0
_JOIN_S = 2.0

Told = Callable[[Attempt, str], None]


class Heartbeat:
    """Extends the leases of attempts that run longer than `heartbeat_s`, from its own thread.

    `told` is called in that thread for each attempt that is not simply held: L lost, Q cancel asked,
    A adopted after a rollback.
    """

    def __init__(
        self,
        store: SyncStore,
        attempts: set[Attempt],
        told: Told,
        place: Workplace,
    ) -> None:
        self._clock = place.clock
        self.last_tick = self._clock.monotonic()
        self._store = store
        self._attempts = attempts
        self._told = told
        self._worker = place.worker
        self._lease_ms = place.lease_ms
        self._heartbeat_s = place.config.heartbeat_s
        self._wake = Event()
        self._stopped = Event()
        self._said_s = self._clock.monotonic() - _SAY_EVERY_S
        self._thread = Thread(target=self._run, name="redjob-heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def poke(self) -> None:
        """Something is to be sent before the next beat; may be called from any thread."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread; wait for it a moment."""
        self._stopped.set()
        self._wake.set()
        self._thread.join(_JOIN_S)

    def beat(self) -> int:
        """Send what is due; return how many beats were answered."""
        now_s = self._clock.monotonic()
        # list() of a set is one step of the interpreter: the event loop may change it meanwhile
        due = [attempt for attempt in list(self._attempts) if self._is_due(attempt, now_s)]
        answered = sum(self._send(part, batch) for part, batch in _batches(due))
        self.last_tick = self._clock.monotonic()
        return answered

    def _run(self) -> None:
        wait_s = min(_LONGEST_WAIT_S, self._heartbeat_s / 4)
        while not self._stopped.is_set():
            self._wake.wait(wait_s)
            self._wake.clear()
            if self._stopped.is_set():
                break
            try:
                self.beat()
            except Exception:
                log.exception("heartbeat_broke")
            self._clock.sleep(min(_GAP_S, wait_s))
        self._store.close()

    def _is_due(self, attempt: Attempt, now_s: float) -> bool:
        if attempt.cause is Cause.LOST:
            return False
        if attempt.beat_s + self._heartbeat_s <= now_s:
            return True
        return attempt.changes != attempt.sent and not attempt.ended

    def _send(self, part: PartitionKeys, batch: list[Attempt]) -> int:
        began_s = self._clock.monotonic()
        changes = [attempt.changes for attempt in batch]  # before the values: see Attempt
        beats = [_beat(attempt) for attempt in batch]
        call = heartbeat(part, self._worker, beats, lease_ms=self._lease_ms, tag=new_token())
        try:
            codes = self._store.call(call, deadline_s=_DEADLINE_S).codes
        except (NotReady, Rebuilding, StoreUnavailable) as exc:
            self._say(part, len(batch), exc)
            return 0
        except RedjobError as exc:
            self._say(part, len(batch), exc)
            # One attempt that the script chokes on must not cost the others their leases.
            return sum(self._send(part, [attempt]) for attempt in batch) if len(batch) > 1 else 0
        for attempt, code, count in zip(batch, codes, changes, strict=True):
            attempt.beat_s, attempt.sent = began_s, count
            if code != "H":
                self._told(attempt, code)
        return len(batch)

    def _say(self, part: PartitionKeys, count: int, exc: RedjobError) -> None:
        now_s = self._clock.monotonic()
        if now_s - self._said_s >= _SAY_EVERY_S:
            self._said_s = now_s
            log.warning("beats_wait partition=%d count=%d reason=%s", part.index, count, exc)


def _beat(attempt: Attempt) -> Beat:
    changed = attempt.changes != attempt.sent
    return Beat(
        attempt.id,
        attempt.record.queue,
        attempt.attempt,
        attempt.head,
        attempt.progress if changed else b"",
        checkpointed(attempt) if changed and attempt.checkpoint else b"",
    )


def _batches(attempts: Iterable[Attempt]) -> Iterator[tuple[PartitionKeys, list[Attempt]]]:
    by_part: dict[int, list[Attempt]] = {}
    for attempt in attempts:
        by_part.setdefault(attempt.part.index, []).append(attempt)
    for group in by_part.values():
        for start in range(0, len(group), MOST):
            yield group[0].part, group[start : start + MOST]
