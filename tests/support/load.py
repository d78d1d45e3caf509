"""A client under load that writes down what it asked and what it was answered; for chaos runs."""

from __future__ import annotations

import itertools
import time
from collections import deque
from datetime import UTC, datetime
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from redjob import CancelResult, Client, JobSpec, Retry
from redjob.errors import JobNotFound, NotReplicated, StoreUnavailable, WrongState
from redjob.store.settings import settings_from_url
from redjob.store.sync import SyncStore
from tests.support.history import Asked, Cancel, CancelReply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from redjob import Job
    from redjob.calls.scripts import ScriptSet
    from redjob.keys import Keyspace
    from redjob.submit import EnqueueOptions
    from redjob.validate import Ack

QUEUE = "q"
RETRY_MS = 200
_QUICK = Retry(max_attempts=5, base_s=RETRY_MS / 1000, factor=1.0, jitter="none")
_FEW = Retry(max_attempts=2, base_s=RETRY_MS / 1000, factor=1.0, jitter="none")
_BURST = 80
_BURST_LONG = 8
_BURST_CANCELS = 30


class PlantedClient(Client):
    """A client with given scripts, that is with a bug or without."""

    def __init__(
        self, url: str, namespace: str, scripts: ScriptSet, *, ack: Ack = "memory"
    ) -> None:
        super().__init__(url, namespace=namespace, ack=ack)
        self._store = SyncStore(settings_from_url(url), namespace, scripts=scripts)

    @property
    def keys(self) -> Keyspace:
        """The keys of the namespace, once it is open."""
        return self._store.keys

    @property
    def store(self) -> SyncStore:
        """The store, for a look at what only queries show."""
        return self._store


class Load:
    """Enqueues and cancels, and keeps the history of it."""

    def __init__(self, client: Client, rng: Random) -> None:
        self.asked: list[Asked] = []
        self.cancels: list[Cancel] = []
        self._client = client
        self._rng = rng
        self._numbers = itertools.count(1)
        self._to_cancel: deque[tuple[float, Job]] = deque()  # at a monotonic moment

    def enqueue(
        self,
        task: str = "work",
        *,
        delay_ms: int = 0,
        key: str | None = None,
        number: int | None = None,
        retry: Retry = _QUICK,
        max_crashes: int = 3,
        **payload: Any,
    ) -> Job | None:
        """Ask for one job and write the answer down; None when there was none."""
        number = number or next(self._numbers)
        run_at_ms = _now_ms() + delay_ms if delay_ms else 0
        job: Job | None = None
        job_id: str | None = None
        try:
            job = self._send(
                task, {"number": number, **payload}, run_at_ms, key, retry, max_crashes
            )
            job_id = job.id
        except (StoreUnavailable, NotReplicated) as exc:
            job_id = exc.job_id
        self.asked.append(
            Asked(
                number=number,
                id=job_id,
                answer="accepted" if job else "unknown",
                replied_ms=_now_ms(),
                run_at_ms=run_at_ms,
                retry_delay_ms=RETRY_MS,
                max_attempts=retry.max_attempts,
                max_crashes=max_crashes,
            )
        )
        return job

    def many(self, specs: Iterable[tuple[int, dict[str, Any]]], task: str = "work") -> list[Job]:
        """Ask for many jobs, as (delay in ms, payload), in one call; all must be accepted."""
        now_ms = _now_ms()
        numbered = [(next(self._numbers), delay_ms, payload) for delay_ms, payload in specs]
        results = self._client.enqueue_many(
            JobSpec(
                task,
                {"number": number, **payload},
                run_at=datetime.fromtimestamp((now_ms + delay_ms) / 1000, UTC),
                queue=QUEUE,
            )
            for number, delay_ms, payload in numbered
        )
        jobs: list[Job] = []
        for (number, delay_ms, _), result in zip(numbered, results, strict=True):
            assert result.job is not None, result.error
            jobs.append(result.job)
            run_at_ms = now_ms + delay_ms
            self.asked.append(
                Asked(number=number, id=result.job.id, run_at_ms=run_at_ms, replied_ms=_now_ms())
            )
        return jobs

    def cancel(self, job: Job) -> None:
        """Cancel a job and write the reply down."""
        reply: CancelReply
        try:
            result = job.cancel()
        except (WrongState, JobNotFound):
            reply = "ended"
        except (StoreUnavailable, NotReplicated):
            reply = "unknown"
        else:
            reply = "cancelled" if result is CancelResult.CANCELLED else "requested"
        self.cancels.append(Cancel(job.id, reply, _now_ms()))

    def one(self) -> None:
        """Ask for one job of a random kind."""
        kind = self._rng.choices(list(_KINDS), weights=[w for w, _ in _KINDS.values()])[0]
        _KINDS[kind][1](self)

    def burst(self) -> None:
        """More at once than workers have slots, and the last ones cancelled while they wait."""
        for _ in range(_BURST_LONG):
            self.long()
        jobs = [self.enqueue(ms=self._rng.randrange(20, 60)) for _ in range(_BURST)]
        for job in jobs[-_BURST_CANCELS:]:
            if job is not None:
                self.cancel(job)

    def cancel_some(self) -> None:
        """Cancel those whose time for it has come."""
        now = time.monotonic()
        while self._to_cancel and self._to_cancel[0][0] <= now:
            self.cancel(self._to_cancel.popleft()[1])

    def immediate(self) -> None:
        """A job that is due at once."""
        self.enqueue(ms=self._rng.randrange(30))

    def in_thread(self) -> None:
        """The same, for a task that is not async."""
        self.enqueue("work_in_thread", ms=self._rng.randrange(30))

    def delayed(self) -> None:
        """A job that is due within 5 s."""
        self.enqueue(delay_ms=self._rng.randrange(1, 5000), ms=self._rng.randrange(30))

    def failing(self) -> None:
        """A job that succeeds after a failure or two."""
        self.enqueue(fails=self._rng.choice((1, 1, 2)), ms=self._rng.randrange(30))

    def hopeless(self) -> None:
        """A job that always fails."""
        self.enqueue(fails=99, retry=_FEW)

    def keyed(self) -> None:
        """A job that is asked for twice."""
        number = next(self._numbers)
        delay_ms = self._rng.choice((0, 0, self._rng.randrange(1, 3000)))
        for _ in range(2):
            self.enqueue(number=number, key=f"k{number}", delay_ms=delay_ms)

    def long(self) -> None:
        """A job that outlives its first lease."""
        self.enqueue(
            self._rng.choice(("work", "work_in_thread")), ms=self._rng.randrange(500, 4000)
        )

    def cancelled(self) -> None:
        """A job that is cancelled before its time, about then, or while it runs."""
        job = self.enqueue(delay_ms=self._rng.randrange(1, 400), ms=self._rng.randrange(200))
        if job is not None:
            self._to_cancel.append((time.monotonic() + self._rng.uniform(0, 0.5), job))

    def _send(
        self,
        task: str,
        payload: dict[str, Any],
        run_at_ms: int,
        key: str | None,
        retry: Retry,
        max_crashes: int,
    ) -> Job:
        options: EnqueueOptions = {
            "queue": QUEUE,
            "idempotency_key": key,
            "retry": retry,
            "max_crashes": max_crashes,
        }
        if not run_at_ms:
            return self._client.enqueue(task, payload, **options)
        when = datetime.fromtimestamp(run_at_ms / 1000, UTC)
        return self._client.enqueue_at(when, task, payload, **options)


_KINDS: dict[str, tuple[int, Callable[[Load], None]]] = {
    "immediate": (45, Load.immediate),
    "in_thread": (7, Load.in_thread),
    "delayed": (20, Load.delayed),
    "failing": (8, Load.failing),
    "hopeless": (1, Load.hopeless),
    "keyed": (8, Load.keyed),
    "long": (2, Load.long),
    "cancelled": (9, Load.cancelled),
}


class LoadThread:
    """Keeps a load up at a rate, in a thread of its own, until it is stopped."""

    def __init__(self, load: Load, *, per_s: float, burst_every_s: float) -> None:
        self._load = load
        self._gap_s = 1 / per_s
        self._burst_every_s = burst_every_s
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="load")
        self._error: BaseException | None = None

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; raises what ended it before."""
        self._stopped.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._keep_up()
        except BaseException as exc:  # noqa: BLE001 - told to whoever stops the thread
            self._error = exc

    def _keep_up(self) -> None:
        next_one = next_burst = time.monotonic()
        while not self._stopped.is_set():
            now = time.monotonic()
            if now >= next_burst:
                self._load.burst()
                next_burst += self._burst_every_s
            self._load.cancel_some()
            self._load.one()
            next_one = max(
                next_one + self._gap_s, now - 1.0
            )  # what was missed for long is not made up
            self._stopped.wait(max(0.0, next_one - time.monotonic()))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
