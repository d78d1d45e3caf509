"""Scheduler nodes at work in a namespace of the test's own, with the test as client and worker."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from redjob.calls import jobs, work
from redjob.codec import encode_past, encode_record, head_of, home_of
from redjob.config import SchedulerConfig
from redjob.ids import new_id, new_token
from redjob.model import Past, Record
from redjob.scheduler import SchedulerNode
from redjob.store.aio import AsyncStore
from redjob.store.settings import settings_from_url
from tests.support.connect import connect, remove

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from redjob.clock import Clock
    from redjob.keys import PartitionKeys

QUEUE = "q"
WITHIN_S = 10.0


async def until(condition: Callable[[], object], *, within_s: float = WITHIN_S) -> None:
    """Wait for a condition, looking often; TimeoutError after `within_s`."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - another process sets it
            await asyncio.sleep(0.005)


class Desk:
    """Enqueues jobs and looks where they are."""

    def __init__(self, url: str, ns: str) -> None:
        self.store = AsyncStore(settings_from_url(url), ns)
        self.redis: Any = connect(url)
        self._ns = ns
        self._rng = Random(5)

    @property
    def part(self) -> PartitionKeys:
        """The first partition."""
        return self.store.keys.parts[0]

    async def enqueue(
        self,
        count: int = 1,
        *,
        in_ms: int = 0,
        every_ms: float = 0,
        queue: str = QUEUE,
        priority: int = 5,
        slot: int | None = None,
    ) -> dict[str, int]:
        """Accept jobs, the first due in `in_ms` (0: now), and return their times by id, wall ms."""
        now_ms = self.store.now_ms()
        made: dict[int, list[jobs.NewJob]] = {}
        for number in range(count):
            run_at_ms = now_ms + in_ms + int(number * every_ms) if in_ms else 0
            at = self._rng.randrange(16384) if slot is None else slot
            job_id = new_id(now_ms, at, self._rng.getrandbits(60))
            record = Record(
                home=home_of(run_at_ms or now_ms),
                created=now_ms,
                run_at=run_at_ms,
                task="task",
                queue=queue,
                priority=priority,
                payload=msgspec.Raw(b"{}"),
            )
            new = jobs.NewJob(job_id, run_at_ms, encode_record(record))
            made.setdefault(self.store.keys.of_job(job_id).index, []).append(new)
        for index, some in made.items():
            for batch in (some[start : start + 400] for start in range(0, len(some), 400)):
                await self.send(index, queue, priority, batch)
        return {job.id: job.run_at_ms or now_ms for some in made.values() for job in some}

    async def send(
        self, index: int, queue: str, priority: int, batch: Sequence[jobs.NewJob]
    ) -> None:
        part = self.store.keys.parts[index]
        call = jobs.enqueue(part, queue, "default", priority, batch, new_token())
        assert set((await self.store.call(call)).codes) <= {"S", "D", "R", "E"}  # E: a repeat

    def entries(self, queue: str = QUEUE) -> list[tuple[str, int]]:
        """Jobs in the streams of a queue, with the ms at which they came there."""
        found: list[tuple[str, int]] = []
        for part in self.store.keys.parts:
            rows: Any = self.redis.xrange(part.queue(queue).stream)
            found += [(row[b"id"].decode(), int(entry.split(b"-")[0])) for entry, row in rows]
        return found

    def fired(self, queue: str = QUEUE) -> dict[str, int]:
        """The same by id; a job that is there twice fails the test."""
        entries = self.entries(queue)
        by_id = dict(entries)
        assert len(by_id) == len(entries), "a job has two entries"
        return by_id

    async def all_fired(self, want: dict[str, int], *, queue: str = QUEUE) -> dict[str, int]:
        """Wait until exactly these jobs are in the streams; return by how many ms each was late."""
        await until(lambda: len(self.entries(queue)) >= len(want))
        found = self.fired(queue)
        assert found.keys() == want.keys()
        return {job_id: found[job_id] - at_ms for job_id, at_ms in want.items()}

    async def all_fired_and_taken(self, want: dict[str, int]) -> None:
        """Wait for jobs of the first partition, and start them."""
        await self.all_fired(want)
        assert {start.id for start in await self.take(self.part, len(want))} == want.keys()

    async def take(
        self, part: PartitionKeys, count: int, *, queue: str = QUEUE
    ) -> list[work.Start]:
        """Start jobs as a worker does."""
        call = work.take(part, [queue], "w", count, lease_ms=30_000, tag=new_token())
        return (await self.store.call(call)).starts

    async def end(
        self, start: work.Start, outcome: str, *, delay_ms: int = 0, queue: str = QUEUE
    ) -> None:
        """End an attempt: C complete, R due again after `delay_ms`."""
        data = b"{}" if outcome == "C" else encode_past(Past(failures=1, last="failed"))
        attempt = int(start.attempts.split(b" ")[0] or 0) + 1 if start.attempts else 1
        end = work.End(start.id, queue, attempt, outcome, head_of(start.doc), delay_ms, data)
        part = self.store.keys.of_job(start.id)
        reply = await self.store.call(work.finish(part, "w", [end], tag=new_token()))
        assert reply.codes == "M"

    async def cancel(self, job_id: str, *, queue: str = QUEUE) -> None:
        """Cancel a job that has not begun."""
        call = jobs.cancel(self.store.keys.of_job(job_id), queue, job_id, b"", new_token())
        assert (await self.store.call(call)).code == "K"

    async def reschedule(self, job_id: str, seen_ms: int, run_at_ms: int) -> None:
        """Give a job in due another time."""
        part = self.store.keys.of_job(job_id)
        call = jobs.reschedule(
            part, QUEUE, job_id, seen_ms=seen_ms, run_at_ms=run_at_ms, tag=new_token()
        )
        assert (await self.store.call(call)).code == "S"

    def epochs(self) -> list[int]:
        """The epochs of all partitions, 0 where there is none."""
        return [int(self.redis.hget(part.meta, "epoch") or 0) for part in self.store.keys.parts]

    def journal_ends_as_meta_says(self, part: PartitionKeys) -> bool:
        """Whether the newest entry is there, with the seq and tag that meta names."""
        newest: Any = self.redis.xrevrange(part.journal, count=1)
        named: Any = self.redis.hmget(part.meta, "seq", "tag")
        seq, tag = named
        return [(entry, fields[b"tag"]) for entry, fields in newest] == [(seq + b"-0", tag)]

    async def close(self) -> None:
        """Remove the namespace from a server that still answers."""
        await self.store.aclose()
        with suppress(Exception):
            remove(self.redis, f"{self._ns}:")
        self.redis.close()


@dataclass
class Running:
    """A node and its task."""

    node: SchedulerNode
    store: AsyncStore
    task: asyncio.Task[None]
    started: float = field(default_factory=time.monotonic)

    async def stop(self) -> None:
        """Stop it in good order, and let errors of its own come out."""
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task
        await self.store.aclose()


class Scene:
    """A namespace with nodes that come and go."""

    def __init__(self, url: str, ns: str, partitions: int) -> None:
        self.url = url
        self.ns = ns
        self.desk = Desk(url, ns)
        self.nodes: list[Running] = []
        self._partitions = partitions

    async def start(
        self, *, ready: bool = True, clock: Clock | None = None, **config: Any
    ) -> Running:
        """Start a node and wait until it has what is its to own."""
        store = AsyncStore(
            settings_from_url(self.url), self.ns, partitions=self._partitions, clock=clock
        )
        node = SchedulerNode(store, SchedulerConfig(**config), rng=Random(len(self.nodes)))
        running = Running(node, store, asyncio.create_task(node.run()))
        self.nodes.append(running)
        if ready:
            await self.is_ready(running)
        return running

    async def is_ready(self, running: Running) -> None:
        """Wait for a node, and for the namespace to be open."""
        async with asyncio.timeout(WITHIN_S):
            waiting = asyncio.create_task(running.node.wait_ready())
            await asyncio.wait([waiting, running.task], return_when=asyncio.FIRST_COMPLETED)
            if running.task.done():
                waiting.cancel()
                await running.task
            await self.desk.store.open()

    async def close(self) -> None:
        """Stop what still runs."""
        for running in self.nodes:
            if not running.task.done():
                await running.stop()
        await self.desk.close()


@asynccontextmanager
async def scheduling(
    url: str, ns: str, *, partitions: int = 4, **config: Any
) -> AsyncGenerator[tuple[Desk, Running, Scene]]:
    """One node that is ready, with quick housekeeping unless `config` says otherwise."""
    scene = Scene(url, ns, partitions)
    try:
        running = await scene.start(**config)
        yield scene.desk, running, scene
    finally:
        await scene.close()
