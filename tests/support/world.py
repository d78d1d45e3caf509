"""Jobs in any state by real scripts, in one line; and each script as a method for jobs of one queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redjob.calls import jobs, owner, sweep, work
from redjob.calls.owner import Parked
from redjob.calls.sweep import Expired
from redjob.errors import Grace
from redjob.model import JobState, Past
from tests.support.dump import Expiring
from tests.support.ground import LEASE_MS, TOKEN, Ground
from tests.support.seed import QUEUE, Job

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.dump import Value

__all__ = ["CRASHED", "LEASE_MS", "TOKEN", "WORKER", "World", "state_in"]

WORKER = "worker1"
CRASHED = Past(crashes=3, last="crashed", dead="crash")


class World(Ground):
    """A partition to put jobs in."""

    # jobs in any state

    def job(self, **given: Any) -> Job:
        """A job that has not been enqueued."""
        return self._seeder.job(self.now_ms, **given)

    def enqueue(self, *new: Job, tag: str | None = None) -> str:
        """Enqueue jobs of one queue, tenant and priority; returns the codes."""
        first = new[0]
        return self.run(
            jobs.enqueue(
                self.part,
                first.queue,
                first.tenant,
                first.priority,
                [job.new for job in new],
                tag or self.tag(),
            )
        ).codes

    def scheduled(self, *, in_ms: int = 60_000, **given: Any) -> Job:
        """A job in due."""
        job = self.job(run_at_ms=self.now_ms + in_ms, **given)
        assert self.enqueue(job) == "S"
        return job

    def overdue(self, **given: Any) -> Job:
        """A job in due whose time is now (the clock goes on 1 ms)."""
        job = self.scheduled(in_ms=1, **given)
        self.advance(1)
        return job

    def dispatched(self, **given: Any) -> Job:
        """A job in its stream."""
        job = self.job(**given)
        assert self.enqueue(job) == "D"
        return job

    def ready(self, **given: Any) -> Job:
        """A job held back by the depth limit, which is lifted afterwards."""
        job = self.job(**given)
        limit = self.redis.hget(self.part.queue(job.queue).flow, "limit")
        self.limit(job.queue, "0")
        assert self.enqueue(job) == "R"
        self.limit(job.queue, limit)
        return job

    def running(
        self,
        *,
        attempt: int = 1,
        worker: str = WORKER,
        lease_ms: int = LEASE_MS,
        past: Past | None = None,
        **given: Any,
    ) -> Job:
        """A job that runs its n-th attempt; the ones before were handed back with `past`."""
        job = self.dispatched(**given)
        for n in range(1, attempt):
            self.begin(job, worker=worker)
            self.finish(job, "B", n, worker=worker, past=past)
        self.begin(job, worker=worker, lease_ms=lease_ms)
        return job

    def retrying(self, *, attempt: int = 1, delay_ms: int = 60_000, **given: Any) -> Job:
        """A job in due after its n-th attempt failed."""
        job = self.running(attempt=attempt, **given)
        self.finish(job, "R", attempt, delay_ms=delay_ms)
        return job

    def dead(self, *, past: Past | None = None, attempt: int = 1, **given: Any) -> Job:
        """A dead job: its task failed for good, unless `past` says CRASHED."""
        job = self.running(attempt=attempt, **given)
        self.finish(job, "F", attempt, past=past)
        return job

    def ended(self, *, stub: bool = False, **given: Any) -> Job:
        """A completed job; with a stub while its key's window lasts."""
        job = self.running(**given)
        self.finish(job, "C", 1, stub=job.stub() if stub else b"")
        return job

    # scripts, for jobs of one queue

    def begin(self, job: Job, *, worker: str = WORKER, lease_ms: int = LEASE_MS) -> None:
        """Start a job by its entry, whatever else is in the stream."""
        entry = self.entry_of(job)
        reply = self.run(
            work.begin(
                self.part, job.queue, worker, [(entry, job.id)], lease_ms=lease_ms, tag=self.tag()
            )
        )
        assert reply.codes == "T"

    def finish(
        self, job: Job, outcome: str, attempt: int = 1, *, worker: str = WORKER, **given: Any
    ) -> str:
        """End one attempt; returns the code."""
        end = job.end(outcome, attempt, **given)
        return self.run(work.finish(self.part, worker, [end], tag=self.tag())).codes

    def take(
        self, n: int = 10, *, queues: tuple[str, ...] = (QUEUE,), worker: str = WORKER
    ) -> work.Taken:
        """Take as a worker does."""
        return self.run(work.take(self.part, queues, worker, n, lease_ms=LEASE_MS, tag=self.tag()))

    def watch(self) -> None:
        """Let the sweeper be heard of, and its grace pass (the clock goes on 1 ms)."""
        empty = sweep.reclaim(self.part, [], grace_ms=1, tag=self.tag())
        try:
            self.run(empty)
        except Grace as grace:
            self.now_ms = grace.until_ms
            self.run(empty)

    def limit(self, queue: str, limit: Any) -> None:
        """Set or lift (None) the depth limit of a queue."""
        flow = self.part.queue(queue).flow
        if limit is None:
            self.redis.hdel(flow, "limit")
        else:
            self.redis.hset(flow, "limit", limit)

    def heartbeat(self, job: Job, attempt: int = 1, *, worker: str = WORKER, **given: Any) -> str:
        """Say that an attempt lives; returns the code."""
        beat = job.beat(attempt, **given)
        return self.run(
            work.heartbeat(self.part, worker, [beat], lease_ms=LEASE_MS, tag=self.tag())
        ).codes

    def fire(self, *due: Job) -> owner.Fired:
        """Fire jobs of one queue, as an owner does."""
        ids = [job.id for job in due]
        return self.run(owner.fire(self.part, due[0].queue, ids, tag=self.tag()))

    def park(self, *due: Job) -> owner.Fired:
        """Fire jobs or park them in ready, as an owner does when there was no room."""
        seen = [Parked(job.id, job.run_at_ms, job.priority, job.tenant) for job in due]
        return self.run(owner.park(self.part, due[0].queue, seen, tag=self.tag()))

    def release(self, *ready: Job) -> str:
        """Let jobs of one queue out of ready; returns the codes."""
        ids = [job.id for job in ready]
        return self.run(owner.release(self.part, ready[0].queue, ids, tag=self.tag())).codes

    def cancel(self, job: Job, *, stub: bytes = b"", tag: str | None = None) -> jobs.Cancelled:
        """Cancel a job."""
        return self.run(jobs.cancel(self.part, job.queue, job.id, stub, tag or self.tag()))

    def reclaim(
        self,
        *running: Job,
        outcome: str = "R",
        run: bytes = b"1 worker1",
        grace_ms: int = LEASE_MS,
        **given: Any,
    ) -> str:
        """End attempts whose lease ran out, as a sweeper does; returns the codes."""
        expired = [Expired(run, job.end(outcome, **given)) for job in running]
        return self.run(sweep.reclaim(self.part, expired, grace_ms=grace_ms, tag=self.tag())).codes

    def requeue(self, *jobs_and_entries: tuple[Job, str], grace_ms: int = LEASE_MS) -> str:
        """Give jobs of one queue new entries; returns the codes."""
        pairs = [(job.id, entry) for job, entry in jobs_and_entries]
        queue = jobs_and_entries[0][0].queue
        return self.run(
            sweep.requeue(self.part, queue, pairs, grace_ms=grace_ms, tag=self.tag())
        ).codes

    def read(self, consumer: str = "theirs", *, queue: str = QUEUE) -> list[tuple[str, str]]:
        """Read entries by plain XREADGROUP, as a consumer in any language: (entry, id) each."""
        found = self.redis.xreadgroup("workers", consumer, {self.part.queue(queue).stream: ">"})
        entries: list[Any] = found[0][1] if found else []
        return [(entry.decode(), fields[b"id"].decode()) for entry, fields in entries]

    # looking

    def entry_of(self, job: Job) -> str:
        """The id of the stream entry that `dispatched` names."""
        entry: Any = self.redis.hget(self.part.dispatched, job.id)
        assert entry is not None, f"{job.id} is not dispatched"
        return str(entry.decode())

    def locate(self, job: Job) -> jobs.Located:
        """Everything that the places hold of a job."""
        return self.run(jobs.locate(self.part, job.queue, job.id))

    def state_of(self, job: Job) -> JobState | None:
        """The state of a job by its place."""
        return state_in(self.dump(), job)


_PLACES = (
    ("due:{queue}/{id}", JobState.SCHEDULED),
    ("dispatched/{id}", JobState.DISPATCHED),
    ("ready:{queue}/{id}", JobState.DISPATCHED),
    ("runs/{id}", JobState.RUNNING),
    ("dead:{queue}/{id}", JobState.FAILED),
)
_ENDS = {"C": JobState.COMPLETED, "K": JobState.CANCELLED, "X": JobState.EXPIRED}


def state_in(state: Mapping[str, Value], job: Job) -> JobState | None:
    """The state of a job by its place in a dump; None when nothing is known of it."""
    for name, found in _PLACES:
        if name.format(queue=job.queue, id=job.id) in state:
            return found
    grave = state.get(f"finished/{job.id}")
    if grave is not None:
        return _ENDS.get(str(grave)[0])
    stub = state.get(f"job:{job.id}")
    return JobState(stub.value.split('"')[3]) if isinstance(stub, Expiring) else None
