"""The bare commands that a job's life needs, in redis-py with hiredis and pipelines: the floor.

No retries, leases, results, journal or identity: what is left is what any queue on Streams pays.
"""

from __future__ import annotations

import time
from typing import Any

from redjob.bench.bare import BareClient

ENQUEUE_BATCH = 500
DRAIN_BATCH = 100
FIRE_BATCH = 500
_GROUP = "workers"
_FIRE = """
local ids = redis.call('ZRANGE', KEYS[1], '-inf', ARGV[1], 'BYSCORE', 'LIMIT', 0, ARGV[2])
if #ids == 0 then return 0 end
local keys = {}
for i = 1, #ids do keys[i] = KEYS[3] .. ids[i] end
local docs = redis.call('MGET', unpack(keys))
for i = 1, #ids do redis.call('XADD', KEYS[2], '*', 'id', ids[i], 'doc', docs[i]) end
redis.call('ZREM', KEYS[1], unpack(ids))
return #ids
"""


class Floor:
    """Bare work on keys of its own, which it removes; results are jobs/s."""

    def __init__(self, client: BareClient, prefix: str, doc: bytes) -> None:
        self._client = client
        self._job = f"{prefix}:floor:job:"
        self._stream = f"{prefix}:floor:stream"
        self._due = f"{prefix}:floor:due"
        self._doc = doc

    def enqueue(self, jobs: int) -> float:
        """A record and a stream entry each: pipelines of MSET and XADD."""
        began = time.perf_counter()
        for first in range(0, jobs, ENQUEUE_BATCH):
            ids = [f"{index:036x}" for index in range(first, min(jobs, first + ENQUEUE_BATCH))]
            pipe = self._client.pipeline(transaction=False)
            pipe.mset({self._job + job_id: self._doc for job_id in ids})
            for job_id in ids:
                pipe.xadd(self._stream, {"id": job_id, "doc": self._doc})
            pipe.execute()
        return jobs / (time.perf_counter() - began)

    def drain(self, jobs: int) -> float:
        """Read what `enqueue` put there, and acknowledge and delete it: one round trip a batch."""
        client, stream = self._client, self._stream
        client.xgroup_create(stream, _GROUP, id="0", mkstream=True)
        began = time.perf_counter()
        done: list[Any] = []
        count = 0
        while True:
            pipe = client.pipeline(transaction=False)
            if done:
                pipe.xack(stream, _GROUP, *done)
                pipe.xdel(stream, *done)
            pipe.xreadgroup(_GROUP, "one", {stream: ">"}, count=DRAIN_BATCH)
            found: Any = pipe.execute()[-1]
            if not found:
                break
            done = [entry for entry, _ in found[0][1]]
            count += len(done)
        seconds = time.perf_counter() - began
        if count != jobs:
            raise RuntimeError(f"the floor read {count} of {jobs} entries")
        return jobs / seconds

    def fire(self, jobs: int) -> float:
        """Move due jobs with their records from a sorted set to a stream, in Lua."""
        client = self._client
        for first in range(0, jobs, ENQUEUE_BATCH):
            ids = [f"{index:036x}" for index in range(first, min(jobs, first + ENQUEUE_BATCH))]
            pipe = client.pipeline(transaction=False)
            pipe.mset({self._job + job_id: self._doc for job_id in ids})
            pipe.zadd(self._due, dict.fromkeys(ids, first))
            pipe.execute()
        sha = client.script_load(_FIRE)
        moved = 0
        began = time.perf_counter()
        while moved < jobs:
            keys = (self._due, self._stream, self._job)
            moved += int(client.evalsha(sha, len(keys), *keys, jobs, FIRE_BATCH))
        return jobs / (time.perf_counter() - began)

    def bytes_per_job(self, jobs: int) -> float:
        """Memory of a record in a key and its id in a sorted set."""
        before = int(self._client.info("memory")["used_memory"])
        for first in range(0, jobs, ENQUEUE_BATCH):
            ids = [f"{index:036x}" for index in range(first, min(jobs, first + ENQUEUE_BATCH))]
            self._client.mset({self._job + job_id: self._doc for job_id in ids})
            self._client.zadd(self._due, dict.fromkeys(ids, first))
        return (int(self._client.info("memory")["used_memory"]) - before) / jobs

    def remove(self) -> None:
        """Remove all of it."""
        client = self._client
        client.unlink(self._stream, self._due)
        page: list[Any] = []
        for key in client.scan_iter(match=f"{self._job}*", count=1000):
            page.append(key)
            if len(page) == ENQUEUE_BATCH:
                client.unlink(*page)
                page.clear()
        if page:
            client.unlink(*page)
