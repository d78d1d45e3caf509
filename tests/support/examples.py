"""One real call of each script, as a short story of a few jobs: what the page of formats shows.

Everything in it is the same in each run and on each server: ids, tags, the clock and the ids of
entries are given; the namespace and the run_id of the server are put in afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from redjob.calls import jobs, owner, sweep, work
from redjob.calls.call import Call
from redjob.calls.owner import Fence
from redjob.calls.scripts import ScriptSet, expanded
from redjob.calls.sweep import Expired
from redjob.codec import encode_outcome, encode_past, encode_record, home_of
from redjob.ids import new_id
from redjob.model import ErrorInfo, JobState, Outcome, Past, Record
from tests.support.clock import NOW
from tests.support.ground import START_MS, Ground
from tests.support.seed import Job

NAMESPACE = "redjob"
RUN_ID = "3f6c0a9e5b7d41c28e90d3a1f7b2c4d6e8f0a1b2"
_QUEUE, _WORKER, _LEASE_MS = "email", "w1", 30_000
_OWNER = Fence(2, "n2")
_ANY_ID = "'XADD', stream, '*'"  # of entries: the server's clock, which lib/now does not replace
_GIVEN_ID = "'XADD', stream, string.format('%.0f-*', now_ms)"


def _scripts() -> ScriptSet:
    """The scripts with a clock that is set, also for the ids of entries."""
    dispatch = expanded("lib/dispatch")
    assert dispatch.count(_ANY_ID) == 1
    return ScriptSet({"lib/now": NOW, "lib/dispatch": dispatch.replace(_ANY_ID, _GIVEN_ID)})


@dataclass(frozen=True, slots=True)
class Example:
    """A call as it was sent and answered, in names of the default namespace."""

    script: str
    keys: list[str]
    args: list[str]
    reply: Any


@dataclass(slots=True)
class Told:
    """The story: examples by script, in its order, and two values that it left in Redis."""

    calls: dict[str, Example] = field(default_factory=dict[str, Example])
    record: str = ""
    entry: list[str] = field(default_factory=list[str])


class Teller:
    """Tells the story once, on one server, in a namespace of its own."""

    def __init__(self, url: str, namespace: str) -> None:
        self._scripts = _scripts()
        self._ground = Ground(url, namespace, scripts=self._scripts)
        self._part = self._ground.part
        self._words = {namespace: NAMESPACE, self._ground.run_id: RUN_ID}
        self._count = 0
        self._told = Told()

    def tell(self) -> Told:
        """Run the story and return what was said."""
        try:
            self._one_job()
            self._many_ends()
            self._held_back()
            self._swept()
            self._owned()
        finally:
            self._ground.close()
        return self._told

    # the story

    def _one_job(self) -> None:
        now, later = self._job(), self._job(in_ms=60_000)
        new = [now.new, later.new]
        self._show(jobs.enqueue(self._part, _QUEUE, "default", 5, new, self._tag()))
        self._told.record = self._text(self._ground.redis.get(self._part.job(later.id)))
        ((_, fields),) = self._ground.redis.xrevrange(self._part.journal, count=1)
        self._told.entry = [self._text(word) for pair in fields.items() for word in pair]
        self._show(jobs.locate(self._part, _QUEUE, later.id))
        self._show(self._take())
        beat = now.beat(1, progress=b'{"sent":1}')
        self._show(work.heartbeat(self._part, _WORKER, [beat], lease_ms=_LEASE_MS, tag=self._tag()))
        outcome = Outcome(
            state=JobState.COMPLETED,
            ended=self._ground.now_ms,
            attempt=1,
            result=msgspec.Raw(b'"sent"'),
        )
        end = work.End(now.id, _QUEUE, 1, "C", now.head, 3_600_000, encode_outcome(outcome))
        self._show(work.finish(self._part, _WORKER, [end], tag=self._tag()))
        soon_ms = later.run_at_ms - 30_000
        self._show(
            jobs.reschedule(
                self._part, _QUEUE, later.id,
                seen_ms=later.run_at_ms, run_at_ms=soon_ms, tag=self._tag(),
            )
        )  # fmt: skip
        self._ground.now_ms = soon_ms
        self._show(owner.fire(self._part, _QUEUE, [later.id], tag=self._tag()))
        self._begin(later)

    def _begin(self, job: Job) -> None:
        """A consumer in another language starts a job and dies; a sweeper ends its attempt."""
        stream = self._part.queue(_QUEUE).stream
        ((_, rows),) = self._ground.redis.xreadgroup("workers", "theirs", {stream: ">"})
        entry = rows[0][0].decode()
        begin = work.begin(
            self._part, _QUEUE, "theirs", [(entry, job.id)], lease_ms=_LEASE_MS, tag=self._tag()
        )
        self._show(begin)
        self._heard()
        at_ms = self._ground.now_ms
        error = ErrorInfo(type="WorkerCrashed", message="its lease ran out", at=at_ms)
        past = encode_past(Past(crashes=1, last="crashed", error=error))
        end = work.End(job.id, _QUEUE, 1, "R", job.head, 700, past)
        self._show(
            sweep.reclaim(
                self._part, [Expired(b"1 theirs", end)], grace_ms=_LEASE_MS, tag=self._tag()
            )
        )
        self._show(jobs.cancel(self._part, _QUEUE, job.id, b"", self._tag()))

    def _many_ends(self) -> None:
        dead = self._job()
        self._enqueue(dead)
        self._ground.run(self._take())
        self._fail(dead, 1)
        died_ms = self._ground.now_ms
        past = encode_past(Past())
        self._show(
            jobs.replay(self._part, _QUEUE, dead.id, died_ms=died_ms, past=past, tag=self._tag())
        )
        self._ground.run(owner.fire(self._part, _QUEUE, [dead.id], tag=self._tag()))
        self._ground.run(self._take())
        self._fail(dead, 2)
        self._ground.advance(1000)
        self._show(sweep.purge(self._part, _QUEUE, [(dead.id, b"")], keep_ms=1000, tag=self._tag()))

    def _held_back(self) -> None:
        flow = self._part.queue(_QUEUE).flow
        self._ground.redis.hset(flow, "limit", "0")
        waiting = self._job()
        self._enqueue(waiting)
        self._ground.redis.hdel(flow, "limit")
        self._show(owner.release(self._part, _QUEUE, [waiting.id], tag=self._tag()))
        self._show(sweep.forget(self._part, _QUEUE, ["t:default"]))
        self._ground.redis.xtrim(self._part.queue(_QUEUE).stream, maxlen=0)
        self._heard()
        self._show(
            sweep.requeue(
                self._part, _QUEUE, [(waiting.id, "")], grace_ms=_LEASE_MS, tag=self._tag()
            )
        )

    def _swept(self) -> None:
        gone = self._job(in_ms=60_000)
        self._enqueue(gone)
        self._ground.redis.delete(self._part.job(gone.id))
        self._show(sweep.lose(self._part, [_QUEUE], [gone.id], tag=self._tag()))
        entries = self._ground.redis.xrange(self._part.queue(_QUEUE).stream)
        self._show(sweep.recount(self._part, _QUEUE, [entries[0][0].decode()]))

    def _owned(self) -> None:
        self._show(
            owner.fence(self._part, _OWNER, incarnation="", depth_limit="10000", grace_ms=_LEASE_MS)
        )
        seq = self._ground.seq
        ((_, fields),) = self._ground.redis.xrevrange(self._part.journal, count=1)
        tag, graves = fields[b"tag"].decode(), self._ground.redis.hkeys(self._part.finished)
        ids = sorted(job_id.decode() for job_id in graves)
        self._show(
            owner.trim(self._part, _OWNER, entry=(seq, tag), before=seq, keep_ms=60_000, ids=ids)
        )
        self._show(owner.renew(self._ground.namespace, 0, "n2", ttl_ms=1000, want=[0], drop=[]))

    # its means

    def _show(self, call: Call[Any]) -> None:
        if call.run_id_at >= 0:
            call.args[call.run_id_at] = self._ground.run_id
        text = self._scripts[call.script].text
        reply = self._ground.redis.eval(text, len(call.keys), *call.keys, *call.args)
        keys, args = [[self._text(word) for word in words] for words in (call.keys, call.args)]
        assert call.script not in self._told.calls, "one call of each script"
        self._told.calls[call.script] = Example(call.script, keys, args, self._value(reply))

    def _job(self, *, in_ms: int = 0) -> Job:
        self._count += 1
        now_ms = self._ground.now_ms
        run_at_ms = now_ms + in_ms if in_ms else 0
        record = Record(
            home=home_of(run_at_ms or now_ms),
            created=now_ms,
            run_at=run_at_ms,
            task="app.send",
            queue=_QUEUE,
            payload=msgspec.Raw(b'{"to":"u%d"}' % self._count),
        )
        job_id = new_id(START_MS, self._count, 0x9D5_AC37_14B2_6E80 + self._count)
        return Job(job_id, _QUEUE, "default", 5, run_at_ms, encode_record(record))

    def _enqueue(self, job: Job) -> None:
        call = jobs.enqueue(self._part, _QUEUE, "default", 5, [job.new], self._tag())
        self._ground.run(call)

    def _take(self) -> Call[work.Taken]:
        return work.take(self._part, [_QUEUE], _WORKER, 10, lease_ms=_LEASE_MS, tag=self._tag())

    def _fail(self, job: Job, attempt: int) -> None:
        end = job.end("F", attempt)
        self._ground.run(work.finish(self._part, _WORKER, [end], tag=self._tag()))

    def _heard(self) -> None:
        """Let a sweeper have been there all the time, and every lease be over."""
        self._ground.advance(_LEASE_MS + 1)
        self._ground.redis.hset(self._part.meta, "seen_ms", self._ground.now_ms)

    def _tag(self) -> str:
        return self._ground.tag()

    def _text(self, word: object) -> str:
        text = word.decode() if isinstance(word, bytes) else str(word)
        for found, shown in self._words.items():
            text = text.replace(found, shown)
        return text

    def _value(self, reply: Any) -> Any:
        if isinstance(reply, list):
            return [self._value(item) for item in reply]  # pyright: ignore[reportUnknownVariableType]
        return reply if isinstance(reply, int) else self._text(reply)
