"""A namespace that is open and owned, an app whose tasks workers of the test run, and no scheduler.

Nothing fires by itself: `fire` does what an owner would, so that a test decides when a job is due.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from dataclasses import replace
from inspect import isawaitable
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from redjob.app import Redjob
from redjob.calls import jobs, owner
from redjob.calls.reads import peek_due
from redjob.calls.scripts import load_script
from redjob.codec import encode_record, home_of
from redjob.config import WorkerConfig
from redjob.ids import new_id, new_token
from redjob.model import Options, Record
from redjob.store.aio import AsyncStore
from redjob.store.settings import settings_from_url
from redjob.worker import WorkerNode
from tests.support.connect import connect_async

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    import pytest

    from redjob.keys import PartitionKeys

QUEUE = "q"
# Leases that a test can outlive; looks so far apart that a test that needs one asks for it.
QUICK = WorkerConfig(
    queues=(QUEUE,),
    concurrency=8,
    lease_s=2.0,
    heartbeat_s=0.2,
    stop_grace_s=5.0,
    look_every_s=30.0,
)
_EXTRA_START = re.compile(r"^extra_start job=(\S+) attempt=(\d+) cause=(\w+)")


class Shop:
    """One namespace with its app, its workers and its server's commands."""

    def __init__(self, url: str, ns: str, store: AsyncStore) -> None:
        self.store = store
        self.app = Redjob(url, namespace=ns)
        self.redis: Any = connect_async(url)
        self.nodes: list[WorkerNode] = []
        self._runs: list[asyncio.Task[None]] = []
        self._rng = Random(7)
        self._epoch = 0

    @property
    def part(self) -> PartitionKeys:
        """The first partition."""
        return self.store.keys.parts[0]

    async def own(self, depth_limit: str = "none") -> None:
        """Install an owner in every partition, as a scheduler does that starts, or sees a restart."""
        self._epoch += 1
        for part in self.store.keys.parts:
            call = owner.fence(
                part,
                owner.Fence(self._epoch, new_token()),
                incarnation=new_token(),
                depth_limit=depth_limit,
                grace_ms=0,
            )
            await self.store.call(call)

    def work(self, *, store: AsyncStore | None = None, **changed: Any) -> WorkerNode:
        """Start a worker with quick times, `changed` aside."""
        node = WorkerNode(self.app, replace(QUICK, **changed), store=store, rng=Random(1))
        self.nodes.append(node)
        self._runs.append(asyncio.get_running_loop().create_task(node.run()))
        return node

    async def stopped(self, node: WorkerNode) -> None:
        """Wait until a worker that was told to stop has returned."""
        await asyncio.wait_for(asyncio.shield(self._runs[self.nodes.index(node)]), 15)

    def cancel(self, node: WorkerNode) -> asyncio.Task[None]:
        """Cancel a worker's run."""
        run = self._runs[self.nodes.index(node)]
        run.cancel()
        return run

    async def fire(self, *, early_ms: int = 0) -> int:
        """Send what is due to the streams; with early_ms also what is due that much later."""
        fired = 0
        for part in self.store.keys.parts:
            until_ms = self.store.now_ms() + early_ms
            due = await self.store.query(
                peek_due(part, QUEUE, after_ms=None, until_ms=until_ms, limit=500)
            )
            if not due:
                continue
            if early_ms:  # fire believes only scores: put them back to now
                past = {job.id: 1 for job in due}
                await self.redis.zadd(part.queue(QUEUE).due, past)
            call = owner.fire(part, QUEUE, [job.id for job in due], tag=new_token())
            fired += (await self.store.call(call)).codes.count("D")
        return fired

    async def put(
        self,
        task: str,
        payload: bytes = b"{}",
        *,
        options: Options = Options(),  # noqa: B008 - frozen
        slot: int | None = None,
        doc: bytes | None = None,
        unheard: bool = False,
    ) -> str:
        """Enqueue what the client would not: any task, payload, options, whole record, no bell."""
        now_ms = self.store.now_ms()
        at = self._rng.randrange(16384) if slot is None else slot
        job_id = new_id(now_ms, at, self._rng.getrandbits(60))
        record = Record(
            home=home_of(now_ms),
            created=now_ms,
            task=task,
            queue=QUEUE,
            payload=msgspec.Raw(payload),
            options=options,
        )
        new = jobs.NewJob(job_id, 0, encode_record(record) if doc is None else doc)
        part = self.store.keys.of_job(job_id)
        call = jobs.enqueue(part, QUEUE, "default", 5, [new], new_token())
        if unheard:
            text = load_script(call.script).text
            async with self.redis.pipeline(transaction=True) as pipe:
                pipe.eval(text, len(call.keys), *call.keys, *call.args)
                pipe.delete(part.queue(QUEUE).bell)  # before the blocked are served
                await pipe.execute()
            return job_id
        reply = await self.store.call(call)
        assert reply.codes in {"D", "R"}
        return job_id

    async def where(self, job_id: str) -> jobs.Located:
        """Every place of a job."""
        return await self.store.call(jobs.locate(self.store.keys.of_job(job_id), QUEUE, job_id))


@asynccontextmanager
async def open_shop(
    url: str, ns: str, *, partitions: int = 2, depth_limit: str = "none"
) -> AsyncGenerator[Shop]:
    """Open a namespace and own it; workers that still run at the end are stopped hard."""
    store = AsyncStore(settings_from_url(url), ns)
    await store.open(create=partitions)
    shop = Shop(url, ns, store)
    await shop.own(depth_limit)
    try:
        yield shop
    finally:
        runs = [shop.cancel(node) for node in shop.nodes]
        await asyncio.gather(*runs, return_exceptions=True)
        await shop.app.aclose()
        await store.aclose()
        await shop.redis.aclose()


async def until(
    true: Callable[[], object] | Callable[[], Awaitable[object]], *, within_s: float = 10
) -> None:
    """Wait until something is so, here or in Redis."""
    async with asyncio.timeout(within_s):
        while True:
            value = true()
            if await value if isawaitable(value) else value:
                return
            await asyncio.sleep(0.005)


async def counted(node: WorkerNode, counter: str, count: int) -> None:
    """Wait until a counter of a worker has reached a value."""
    await until(lambda: getattr(node.counters, counter) == count)


async def looked(node: WorkerNode, times: int) -> None:
    """Wait until a worker has looked around some times more."""
    seen = {node.last_tick}

    def enough() -> bool:
        seen.add(node.last_tick)
        return len(seen) > times

    await until(enough)


def extra_starts(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int, str]]:
    """What the log explains: job, attempt that ended unfinished, cause."""
    found = (_EXTRA_START.match(record.getMessage()) for record in caplog.records)
    return [(match[1], int(match[2]), match[3]) for match in found if match]


def messages(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    """The lines of one event."""
    texts = [record.getMessage() for record in caplog.records]
    return [text for text in texts if text.split(" ")[0] == event]
