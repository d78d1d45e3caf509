"""One partition on a real server, with jobs in any state by real scripts and a clock that tests set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar

from redis import Redis

from redjob.calls import jobs, owner, sweep, work
from redjob.calls.owner import Fence
from redjob.errors import Grace
from redjob.keys import Keyspace
from redjob.model import JobState, Past
from redjob.store.namespace import open_query
from redjob.store.settings import settings_from_url
from redjob.store.sync import SyncStore
from tests.support.clock import clock_key, clocked_scripts
from tests.support.dump import Dumper, Expiring, Journaled, State, Value, changes
from tests.support.invariants import violations
from tests.support.seed import QUEUE, Job, Seeder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from redjob.calls.call import Call
    from redjob.calls.scripts import ScriptSet

T = TypeVar("T")
START_MS = 1_790_000_000_000
LEASE_MS = 30_000
WORKER = "worker1"
TOKEN = Fence(1, "nonce")
CRASHED = Past(crashes=3, last="crashed", dead="crash")


class World:
    """An opened namespace of one partition; `scripts` are the ones with a clock unless given."""

    def __init__(
        self,
        url: str,
        namespace: str,
        *,
        depth_limit: str = "none",
        scripts: ScriptSet | None = None,
    ) -> None:
        self.namespace = namespace
        self.redis: Any = Redis.from_url(url)  # typed for both kinds of client at once, so for none
        self.store = SyncStore(
            settings_from_url(url, deadline_s=5.0), namespace, scripts=scripts or clocked_scripts()
        )
        self.store.query(open_query(namespace, 1))
        self.keys: Keyspace = self.store.keys
        self.part = self.keys.parts[0]
        self.dump = Dumper(self.redis, self.part)
        self._seeder = Seeder(namespace)
        self._tags = 0
        self._now_ms = 0
        self.now_ms = START_MS
        self.run(
            owner.fence(
                self.part, TOKEN, incarnation="inc", depth_limit=depth_limit, grace_ms=LEASE_MS
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the namespace: shared servers stay small."""
        found = list(self.redis.scan_iter(f"{self.namespace}:*", count=10_000))
        if found:
            self.redis.unlink(*found)
        self.redis.close()
        self.store.close()

    # the clock

    @property
    def now_ms(self) -> int:
        """What scripts take for the time, wall ms."""
        return self._now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self.redis.set(clock_key(self.namespace), now_ms)

    def advance(self, ms: int) -> None:
        """Let time pass for scripts."""
        self.now_ms += ms

    # calls

    def tag(self) -> str:
        """A request id, the same in every run."""
        self._tags += 1
        return f"{self._tags:016x}"

    def run(self, call: Call[T]) -> T:
        """Send a call."""
        return self.store.call(call)

    def raw(self, call: Call[Any], *, run_id: str | None = None) -> Any:
        """Send a call and return its reply unread; `run_id` as if read from another server."""
        if call.run_id_at >= 0:
            call.args[call.run_id_at] = self.run_id if run_id is None else run_id
        return self.redis.eval(
            clocked_scripts()[call.script].text, len(call.keys), *call.keys, *call.args
        )

    def do(self, call: Call[T]) -> tuple[T, State]:
        """Send a call and return its reply with everything that it changed; all invariants hold after."""
        before = self.dump()
        reply = self.run(call)
        after = self.dump()
        assert violations(after) == []
        return reply, changes(before, after)

    def check(self) -> State:
        """Assert all invariants and return the state."""
        state = self.dump()
        assert violations(state) == []
        return state

    @property
    def run_id(self) -> str:
        """The run_id of the server."""
        return str(self.redis.info("server")["run_id"])

    # expectations

    @property
    def seq(self) -> int:
        """The number of the newest journal entry."""
        return int(self.redis.hget(self.part.meta, "seq") or 0)

    def journaled(self, op: str, tag: str, *lines: str, worker: str = "") -> dict[str, Value]:
        """What one journal entry adds, when it is the newest: to be part of expected changes."""
        seq = self.seq
        prev = self.redis.xrange(self.part.journal, f"{seq - 1}-0", f"{seq - 1}-0")
        prev_tag = prev[0][1][b"tag"].decode() if prev else ""
        entry = Journaled(op, tag, prev_tag, self.now_ms, lines, worker)
        return {f"journal/{seq}": entry, "meta/seq": str(seq), "meta/tag": tag}

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

    # steps that lead there

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

    # rolling back

    def save(self) -> dict[bytes, bytes]:
        """All keys of the partition, to be put back by `restore` as a failover would."""
        keys: list[bytes] = self.redis.keys(f"{self.part.base}*")
        return {key: self.redis.dump(key) for key in keys}

    def restore(self, saved: dict[bytes, bytes]) -> None:
        """Take the partition back to where it was saved."""
        keys = self.redis.keys(f"{self.part.base}*")
        if keys:
            self.redis.delete(*keys)
        for key, value in saved.items():
            self.redis.restore(key, 0, value)

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
