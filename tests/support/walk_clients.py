"""Random calls of clients and owners, for the walk over one partition."""

from __future__ import annotations

import math

from redjob.calls import jobs, owner
from redjob.calls.owner import Fence, Parked
from tests.support.model import LIVING, Known
from tests.support.walk import QUEUES, Walk

GRACE_MS = 500
AT_MOST = 40  # unfinished jobs: more would only make each look slower
ENDED = {*"CKX", "purged"}


class ClientCalls(Walk):
    """enqueue, cancel, reschedule, replay, locate; fire, park, release, fence, trim; limits and pauses."""

    # calls of clients

    def do_enqueue(self) -> None:
        queue, again = self.rng.choice(QUEUES), self.rng.random() < 0.3
        known = self._some("due", queue, 2) if again else []
        if sum(known.place in LIVING for known in self.model.jobs.values()) < AT_MOST:
            for _ in range(self.rng.randint(1, 3)):
                at = self.world.now_ms + self.rng.choice((-5, 1, 50, 2000, 60_000))
                job = self.world.job(queue=queue, run_at_ms=self.rng.choice((0, at)))
                self.model.jobs[job.id] = Known(job)
                known.append(self.model.jobs[job.id])
        known = [one for one in known if one.place != "lost"]
        if known:
            new = [one.job.new for one in known]
            call = jobs.enqueue(self.world.part, queue, "default", 5, new, self.world.tag())
            call.args[call.again_at] = "1" if again else "0"
            self._call(call, self.model.enqueue(queue, known, again=again))

    do_enqueue_more = do_enqueue

    def do_cancel(self) -> None:
        for known in self._some("running", most=1)[:1]:
            call = jobs.cancel(
                self.world.part, known.job.queue, known.job.id, b"", self.world.tag()
            )
            self._call(call, self.model.cancel(known))

    def do_reschedule(self) -> None:
        for known in self._some("due", most=1)[:1]:
            seen = known.due_ms + self.rng.choice((0, 0, 0, 1))
            target = self.world.now_ms + self.rng.choice((0, 500, known.due_ms - self.world.now_ms))
            code = "S"
            if known.place != "due":
                code = "A"
            elif target == known.due_ms:
                code = "="
            elif seen != known.due_ms:
                code = "C"
            call = jobs.reschedule(
                self.world.part, known.job.queue, known.job.id,
                seen_ms=seen, run_at_ms=target, tag=self.world.tag(),
            )  # fmt: skip
            if code == "S":
                known.due_ms = target
            self._call(call, code)

    def do_replay(self) -> None:
        for known in self._some("dead", most=1)[:1]:
            seen = known.died_ms + self.rng.choice((0, 0, 0, 1))
            code = "A" if known.place != "dead" else "S" if seen == known.died_ms else "C"
            call = jobs.replay(
                self.world.part, known.job.queue, known.job.id,
                died_ms=seen, past=b"{}", tag=self.world.tag(),
            )  # fmt: skip
            if code == "S":
                self.model.to_due(known, self.world.now_ms)
            self._call(call, code)

    def locate(self) -> None:
        for known in self._some("stream", most=1)[:1]:
            found = self.world.locate(known.job)
            places = {
                "due": found.due, "stream": found.entry, "ready": found.ready,
                "running": found.run, "dead": found.dead,
            }  # fmt: skip
            there = [place for place, value in places.items() if value]
            self._compare("locate", [known.place] if known.place in LIVING else [], there)

    # calls of owners

    def do_fire(self) -> None:
        queue = self.rng.choice(QUEUES)
        chosen = self._some("due", queue)
        ids = [known.job.id for known in chosen]
        call = owner.fire(self.world.part, queue, ids, tag=self.world.tag())
        self._call(call, self.model.fire(queue, chosen))

    do_fire_more = do_fire_most = do_fire

    def do_park(self) -> None:
        queue = self.rng.choice(QUEUES)
        chosen = self._some("due", queue)
        seen = [known.due_ms + self.rng.choice((0, 0, 0, 1)) for known in chosen]
        parked = [
            Parked(known.job.id, at, 5, "default") for known, at in zip(chosen, seen, strict=True)
        ]
        call = owner.park(self.world.part, queue, parked, tag=self.world.tag())
        self._call(call, self.model.fire(queue, chosen, seen))

    def do_release(self) -> None:
        queue = self.rng.choice(QUEUES)
        chosen = self._some("ready", queue)
        if chosen:
            ids = [known.job.id for known in chosen]
            call = owner.release(self.world.part, queue, ids, tag=self.world.tag())
            self._call(call, self.model.release(queue, chosen))

    do_release_more = do_release

    def do_housekeeping(self) -> None:
        self.rng.choice((self.fence, self.set_a_limit, self.pause, self.locate))()

    def fence(self) -> None:
        self.token = Fence(self.token.epoch + 1, "nonce")
        self.world.run(
            owner.fence(
                self.world.part, self.token, incarnation="", depth_limit="none", grace_ms=GRACE_MS
            )
        )

    def do_trim(self) -> None:
        seq = self.world.seq
        tag = self.world.redis.hget(self.world.part.meta, "tag").decode()
        ended = [k for k in self.model.jobs.values() if k.place in ENDED]
        call = owner.trim(
            self.world.part, self.token, entry=(seq, tag), before=seq, keep_ms=0,
            ids=[known.job.id for known in ended],
        )  # fmt: skip
        self._compare("trim", len(ended), self.world.run(call).dropped)
        for known in ended:
            del self.model.jobs[known.job.id]
            known.place = ""

    def set_a_limit(self) -> None:
        queue, limit = (
            self.rng.choice(QUEUES),
            self.rng.choice((0, 4, *[math.inf] * 6)),
        )
        self.model.queues[queue].limit = limit
        self.world.limit(queue, "none" if limit == math.inf else int(limit))

    def pause(self) -> None:
        name = self.rng.choice(QUEUES)
        queue, flow = self.model.queues[name], self.world.part.queue(name).flow
        queue.paused = not queue.paused and self.rng.random() < 0.2
        if queue.paused:
            self.world.redis.hset(flow, "paused", "1")
        else:
            self.world.redis.hdel(flow, "paused")
