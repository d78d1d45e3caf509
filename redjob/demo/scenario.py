"""What the demo asks of redjob: jobs of every kind, and one worker killed in the middle of a job."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from redjob import AsyncClient, JobSpec, Retry
from redjob.clock import SystemClock
from redjob.demo.app import HOPELESS_TRIES, QUEUE
from redjob.demo.stack import Stack
from redjob.demo.trace import ends, starts
from redjob.job import AsyncJob

IMMEDIATE, SPREAD, SPREAD_S = 200, 50, 5
_FIRST_S = 0.5  # the first of the spread jobs is due then
_CANCELLED_IN_S = 4.0
_DEADLINE_S = 40.0

Say = Callable[[str], None]


@dataclass
class Kind:
    """Jobs of one kind: ids, and when each was due (wall ms): a time asked for, or that of the call."""

    name: str
    due_ms: dict[str, int] = field(default_factory=dict[str, int])


@dataclass
class Asked:
    """What was asked for and how redjob answered; what came of it is read elsewhere."""

    immediate: Kind = field(default_factory=lambda: Kind("at once"))
    spread: Kind = field(default_factory=lambda: Kind("at a time"))
    flaky: Kind = field(default_factory=lambda: Kind("fails twice"))
    hopeless: Kind = field(default_factory=lambda: Kind("fails always"))
    cancelled: Kind = field(default_factory=lambda: Kind("cancelled"))
    keyed: Kind = field(default_factory=lambda: Kind("one key, twice"))
    killed: Kind = field(default_factory=lambda: Kind("worker killed"))
    key_created: list[bool] = field(default_factory=list[bool])
    killed_pid: int = 0

    @property
    def kinds(self) -> list[Kind]:
        """All kinds, as they are reported."""
        return [
            self.immediate, self.spread, self.flaky, self.hopeless, self.cancelled, self.keyed,
            self.killed,
        ]  # fmt: skip


async def play(client: AsyncClient, stack: Stack, say: Say) -> Asked:
    """Ask for everything and return when nothing is left to happen. Raises TimeoutError."""
    asked = Asked()
    async with asyncio.timeout(_DEADLINE_S):
        await _spread(client, asked, say)
        await _immediate(client, asked, say)
        await _single(client, asked, say)
        await _all_ended(client, stack, asked, say)
        await _kill(client, stack, asked, say)
    return asked


async def _spread(client: AsyncClient, asked: Asked, say: Say) -> None:
    begin = datetime.now(UTC) + timedelta(seconds=_FIRST_S)
    times = [begin + timedelta(seconds=SPREAD_S * n / SPREAD) for n in range(SPREAD)]
    specs = [
        JobSpec("demo.quick", {"number": n}, run_at=when, queue=QUEUE)
        for n, when in enumerate(times)
    ]
    for result, when in zip(await client.enqueue_many(specs), times, strict=True):
        asked.spread.due_ms[_accepted(result.job).id] = round(when.timestamp() * 1000)
    say(f"{SPREAD} jobs accepted for the next {SPREAD_S} s")


async def _immediate(client: AsyncClient, asked: Asked, say: Say) -> None:
    clock = SystemClock()
    called_ms = clock.wall_ms()
    specs = [JobSpec("demo.quick", {"number": n}, queue=QUEUE) for n in range(IMMEDIATE)]
    for result in await client.enqueue_many(specs):
        asked.immediate.due_ms[_accepted(result.job).id] = called_ms
    say(f"{IMMEDIATE} jobs accepted to run at once, in {clock.wall_ms() - called_ms} ms")


async def _single(client: AsyncClient, asked: Asked, say: Say) -> None:
    await _one(client, asked.flaky, "demo.flaky", Retry(max_attempts=5, base_s=0.2, factor=1.0))
    retry = Retry(max_attempts=HOPELESS_TRIES, base_s=0.2, factor=1.0)
    await _one(client, asked.hopeless, "demo.hopeless", retry)
    say("one job that fails twice, one that fails always")

    job = await client.enqueue_in(_CANCELLED_IN_S, "demo.quick", {"number": 0}, queue=QUEUE)
    asked.cancelled.due_ms[job.id] = (await job.info()).run_at_ms or 0
    say(f"one job for {_CANCELLED_IN_S:g} s ahead, and cancelled: {(await job.cancel()).value}")

    for _ in range(2):
        called_ms = SystemClock().wall_ms()
        job = await client.enqueue(
            "demo.quick", {"number": 7}, queue=QUEUE, idempotency_key="order-7"
        )
        asked.keyed.due_ms.setdefault(job.id, called_ms)
        asked.key_created.append(job.created)
    say(f"one idempotency key used twice: {len(asked.keyed.due_ms)} job")


async def _one(client: AsyncClient, kind: Kind, task: str, retry: Retry | None = None) -> AsyncJob:
    called_ms = SystemClock().wall_ms()
    job = await client.enqueue(task, queue=QUEUE, retry=retry)
    kind.due_ms[job.id] = called_ms
    return job


async def _kill(client: AsyncClient, stack: Stack, asked: Asked, say: Say) -> None:
    job = await _one(client, asked.killed, "demo.long")
    await _until(lambda: any(start.job_id == job.id for start in starts(stack.trace)))
    pid = next(start.pid for start in starts(stack.trace) if start.job_id == job.id)
    worker = stack.worker_of(pid)
    assert worker is not None, "the trace names a process that is no worker of ours"
    os.kill(pid, signal.SIGKILL)
    asked.killed_pid = pid
    say(f"{worker.spec.name} (pid {pid}) killed with -9 in the middle of a job")
    await _until(lambda: any(end.job_id == job.id for end in ends(stack.trace)))
    await _ended(client, [job.id])
    say("that job has ended: another attempt ran it")


async def _all_ended(client: AsyncClient, stack: Stack, asked: Asked, say: Say) -> None:
    wanted = [job_id for kind in asked.kinds for job_id in kind.due_ms]
    # The trace costs redjob nothing to look at; only then is each job asked for.
    await _until(lambda: len(ends(stack.trace)) >= IMMEDIATE + SPREAD)
    await _ended(client, wanted)
    say(f"all {len(wanted)} jobs have ended")


async def _until(condition: Callable[[], bool]) -> None:
    while True:
        if condition():
            return
        await asyncio.sleep(0.02)


async def _ended(client: AsyncClient, job_ids: list[str]) -> None:
    left = job_ids
    while left:
        states = [await client.state(job_id) for job_id in left]
        left = [job_id for job_id, state in zip(left, states, strict=True) if not state.terminal]
        await asyncio.sleep(0.05)


def _accepted(job: AsyncJob | None) -> AsyncJob:
    assert job is not None, "a job was refused"
    return job
