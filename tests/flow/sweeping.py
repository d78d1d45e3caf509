"""A namespace that is open and owned, with its workers and its sweeper in the test's own hands."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from redjob.calls import jobs, owner, work
from redjob.codec import decode_attempts, encode_record, head_of, home_of
from redjob.config import SweeperConfig
from redjob.ids import keyed_job_id, new_id, new_token
from redjob.model import Attempts, Options, Record
from redjob.store.aio import AsyncStore
from redjob.store.settings import settings_from_url
from redjob.sweeper import SweeperNode, Swept
from tests.support.connect import connect

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    import pytest

    from redjob.keys import PartitionKeys

QUEUE = "q"
# Quick, so that a test waits for what happens and not for a clock.
QUICK = SweeperConfig(
    every_s=0.02, lease_s=0.05, never_begun_s=0.05, overdue_s=0.05, scan_every_s=0.05, batch=50
)
_EXTRA_START = re.compile(r"^extra_start job=(\S+) attempt=(\d+) cause=(\w+)")


class Made(NamedTuple):
    """A job of a test."""

    id: str
    queue: str
    doc: bytes

    @property
    def head(self) -> bytes:
        """The start of the record, as finish and heartbeat take it."""
        return head_of(self.doc)


class Stage:
    """One namespace, and what happens in it."""

    def __init__(self, url: str, ns: str, store: AsyncStore) -> None:
        self.store = store
        self.redis: Any = connect(url)
        self._ns = ns
        self._rng = Random(7)

    @property
    def part(self) -> PartitionKeys:
        """The first partition."""
        return self.store.keys.parts[0]

    async def own(self, epoch: int, depth_limit: str = "none") -> None:
        """Install an owner in every partition, as a scheduler does that starts, or sees a restart."""
        for part in self.store.keys.parts:
            token = owner.Fence(epoch, new_token())
            call = owner.fence(
                part, token, incarnation=new_token(), depth_limit=depth_limit, grace_ms=0
            )
            await self.store.call(call)

    async def enqueue(
        self,
        count: int = 1,
        *,
        in_ms: int = 0,
        queue: str = QUEUE,
        options: Options = Options(),  # noqa: B008 - frozen
        payload: bytes = b"{}",
        slot: int | None = None,
    ) -> list[Made]:
        """Accept jobs; without a slot they go to any partition, a keyed one to that of its key."""
        now_ms = self.store.now_ms()
        run_at_ms = now_ms + in_ms if in_ms else 0
        made: list[Made] = []
        for _ in range(count):
            at = self._rng.randrange(16384) if slot is None else slot
            job_id = new_id(now_ms, at, self._rng.getrandbits(60))
            if options.key is not None:
                job_id = keyed_job_id(self._ns, "default", options.key)
            record = Record(
                home=home_of(run_at_ms or now_ms),
                created=now_ms,
                run_at=run_at_ms,
                task="task",
                queue=queue,
                payload=msgspec.Raw(payload),
                options=options,
                body_hash="h" if options.key else None,
            )
            made.append(Made(job_id, queue, encode_record(record)))
        for job in made:
            part = self.store.keys.of_job(job.id)
            new = [jobs.NewJob(job.id, run_at_ms, job.doc)]
            reply = await self.store.call(jobs.enqueue(part, queue, "default", 5, new, new_token()))
            assert reply.codes in {"S", "D", "R"}
        return made

    async def start(self, count: int = 1, *, worker: str = "w1", lease_ms: int = 1) -> list[str]:
        """Take jobs of the first partition, by default with a lease that is over at once."""
        call = work.take(self.part, [QUEUE], worker, count, lease_ms=lease_ms, tag=new_token())
        return [begun.id for begun in (await self.store.call(call)).starts]

    async def where(self, job: Made) -> jobs.Located:
        """Every place of a job."""
        part = self.store.keys.of_job(job.id)
        return await self.store.call(jobs.locate(part, job.queue, job.id))

    async def attempts(self, job: Made) -> Attempts:
        """What the past of a job says."""
        return decode_attempts((await self.where(job)).attempts)

    async def cancel(self, job: Made) -> str:
        """Cancel a job; the letter of the reply."""
        part = self.store.keys.of_job(job.id)
        return (await self.store.call(jobs.cancel(part, job.queue, job.id, b"", new_token()))).code

    def sweeper(self, **changed: Any) -> SweeperNode:
        """A sweeper with quick times, `changed` aside."""
        return SweeperNode(self.store, replace(QUICK, **changed), rng=Random(1))

    async def awake(self, **changed: Any) -> SweeperNode:
        """A sweeper for which the grace of a new namespace is over."""
        node = self.sweeper(**changed)
        async with asyncio.timeout(10):
            while True:
                swept = await node.tick()
                if not swept.graced:
                    return node
                await asyncio.sleep(0.01)


@asynccontextmanager
async def staged(
    url: str, ns: str, *, partitions: int = 1, depth_limit: str = "none"
) -> AsyncGenerator[Stage]:
    """Open a namespace and own it, as a scheduler does, without ever firing."""
    store = AsyncStore(settings_from_url(url), ns)
    await store.open(create=partitions)
    stage = Stage(url, ns, store)
    await stage.own(1, depth_limit)
    try:
        yield stage
    finally:
        await store.aclose()
        stage.redis.close()


async def until(
    step: Callable[[], Awaitable[Swept]], done: Callable[[Swept], object], *, within_s: float = 10
) -> Swept:
    """Repeat a step until the account of all its runs is as wished, and return that."""
    total = Swept()
    async with asyncio.timeout(within_s):
        while True:
            swept = await step()
            for name, count in asdict(swept).items():
                setattr(total, name, getattr(total, name) + count)
            if done(total):
                return total
            await asyncio.sleep(0.01)


def extra_starts(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int, str]]:
    """What the log explains: job, attempt that ended unfinished, cause."""
    found = (_EXTRA_START.match(record.getMessage()) for record in caplog.records)
    return [(match[1], int(match[2]), match[3]) for match in found if match]
