"""Random calls of workers and sweepers, for the walk over one partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redjob.calls import sweep, work
from redjob.calls.sweep import Expired
from redjob.errors import Grace
from redjob.model import Past
from tests.support.walk import QUEUES, WORKERS, Walk
from tests.support.world import CRASHED

if TYPE_CHECKING:
    from redjob.calls.call import Call
    from tests.support.model import Known, Line

OUTCOMES = "CCRRZBBFFX"
GRACE_MS = 500
LEASES_MS = (1, 1500, 30_000)
DELAYS_MS = (0, 50, 60_000)
FAILED = Past(failures=5, last="failed", dead="failure")


class WorkerCalls(Walk):
    """take, begin, heartbeat, finish; reclaim, requeue, purge, recount, lose, forget."""

    # calls of workers

    def do_take(self) -> None:
        worker, n = self.rng.choice(WORKERS), self.rng.randint(1, 6)
        queues = self.rng.sample(QUEUES, self.rng.randint(1, 2))
        lease_ms = self.rng.choice(LEASES_MS)
        tag = self.world.tag()
        call = work.take(self.world.part, queues, worker, n, lease_ms=lease_ms, tag=tag)
        taken = self.world.run(call)
        ids = [start.id for start in taken.starts]
        found = (ids, taken.stale, taken.release)
        self._compare("take", self.model.take(queues, worker, n, lease_ms), found)
        if ids and self.rng.random() < 0.3:  # a call that started nothing may take when repeated
            call.args[call.again_at] = "1"
            again = [start.id for start in self.world.run(call).starts]
            self._compare("take again", ids, again)

    do_take_more = do_take_most = do_take

    def do_read(self) -> None:
        """A consumer in any language reads two entries, and may never begin them."""
        queue = self.rng.choice(QUEUES)
        stream = self.world.part.queue(queue).stream
        if self.world.redis.exists(stream):
            self.world.redis.xreadgroup("workers", "theirs", {stream: ">"}, count=2)
        for line in [line for line in self.model.queues[queue].lines if not line.read][:2]:
            line.read = True

    def do_begin(self) -> None:
        queue, worker = self.rng.choice(QUEUES), self.rng.choice(WORKERS)
        lines = self._lines(queue)
        if lines:
            lease_ms = self.rng.choice(LEASES_MS)
            entries = [(self._entry(line), line.known.job.id) for line in lines]
            call = work.begin(
                self.world.part, queue, worker, entries, lease_ms=lease_ms, tag=self.world.tag()
            )
            self._call(call, self.model.begin(lines, worker, lease_ms))

    def do_heartbeat(self) -> None:
        chosen = self._some("running")
        worker, lease_ms = self._worker(chosen), self.rng.choice(LEASES_MS)
        told = [(known, self._attempt(known), self.rng.random() < 0.2) for known in chosen]
        beats = [
            known.job.beat(attempt, past=b"{}" if checkpoint else b"")
            for known, attempt, checkpoint in told
        ]
        if beats:
            call = work.heartbeat(
                self.world.part, worker, beats, lease_ms=lease_ms, tag=self.world.tag()
            )
            self._call(call, self.model.heartbeat(told, worker, lease_ms))

    def do_finish(self) -> None:
        chosen = self._some("running")
        worker, delay_ms = self._worker(chosen), self.rng.choice(DELAYS_MS)
        told = [
            (known, self._attempt(known), self.rng.choice(OUTCOMES), self.rng.random() < 0.5)
            for known in chosen
        ]
        ends = [
            known.job.end(outcome, attempt, delay_ms=delay_ms, past=_past(outcome, crashed))
            for known, attempt, outcome, crashed in told
        ]
        if ends:
            call = work.finish(self.world.part, worker, ends, tag=self.world.tag())
            self._call(call, self.model.finish(told, worker, delay_ms))

    do_finish_more = do_finish

    # calls of sweepers

    def do_reclaim(self) -> None:
        delay_ms = self.rng.choice(DELAYS_MS)
        told = [
            (known, known.run if self.rng.random() < 0.9 else "7 w1", self.rng.choice("RRF"))
            for known in self._some("running")
        ]
        expired = [
            Expired(
                run.encode(),
                known.job.end(outcome, known.attempt, delay_ms=delay_ms, past=_past(outcome, True)),
            )
            for known, run, outcome in told
        ]
        call = sweep.reclaim(self.world.part, expired, grace_ms=GRACE_MS, tag=self.world.tag())
        if self._may_sweep(call):
            self._call(call, self.model.reclaim(told, delay_ms))

    do_reclaim_more = do_reclaim

    def do_requeue(self) -> None:
        queue = self.rng.choice(QUEUES)
        lines = self._lines(queue)
        told: list[tuple[Known, Line | None]] = [
            (line.known, line if self.rng.random() < 0.8 else None) for line in lines
        ]
        pairs = [(known.job.id, self._entry(line) if line else "") for known, line in told]
        call = sweep.requeue(self.world.part, queue, pairs, grace_ms=GRACE_MS, tag=self.world.tag())
        if self._may_sweep(call):
            self._call(call, self.model.requeue(told))

    def _may_sweep(self, call: Call[Any]) -> bool:
        if self.model.grace(GRACE_MS):
            try:
                self.world.run(call)
            except Grace:
                return False
            raise AssertionError(self._said("no grace"))
        return True

    def do_purge(self) -> None:
        queue, keep_ms = self.rng.choice(QUEUES), self.rng.choice((0, 1, 3000))
        chosen = self._some("dead", queue)
        codes = ""
        pairs = [(known.job.id, b"") for known in chosen]
        for known in chosen:
            if known.place != "dead":
                codes += "A"
            elif self.world.now_ms - known.died_ms < keep_ms:
                codes += "Y"
            else:
                known.leave("purged")
                codes += "M"
        call = sweep.purge(self.world.part, queue, pairs, keep_ms=keep_ms, tag=self.world.tag())
        self._call(call, codes)

    def do_recount(self) -> None:
        queue = self.rng.choice(QUEUES)
        lines = self._lines(queue)
        before = len(self.model.queues[queue].lines)
        stale = [line for line in lines if line.known.line is not line]
        for line in stale:
            self.model.settle(line)
        found = self.world.run(
            sweep.recount(self.world.part, queue, [self._entry(line) for line in lines])
        )
        left = len(self.model.queues[queue].lines)
        self._compare("recount", (before, left, len(stale)), found[1:])

    def do_lose(self) -> None:
        for known in self._some(self.rng.choice(("due", "stream", "ready")), most=1)[
            : self.rng.randint(0, 1)
        ]:
            if known.place in {"running", "dead"}:
                continue
            codes = {"due": "L", "ready": "L", "stream": "D", "lost": "L"}.get(known.place, "A")
            self.world.redis.delete(self.world.part.job(known.job.id))
            if codes == "L":
                known.leave("lost")
            call = sweep.lose(self.world.part, QUEUES, [known.job.id], tag=self.world.tag())
            self._call(call, codes)

    def do_forget(self) -> None:
        queue = self.rng.choice(QUEUES)
        self.world.run(sweep.forget(self.world.part, queue, ["t:default", "t:other"]))


def _past(outcome: str, crashed: bool) -> Past | None:
    if outcome != "F":
        return None
    return CRASHED if crashed else FAILED
