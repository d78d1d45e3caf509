"""What came of the demo: the state of each job as Redis tells it, its starts as the trace tells them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass

from redjob import AsyncClient, JobInfo
from redjob.calls.overview import queue_counts
from redjob.demo.app import QUEUE
from redjob.demo.scenario import Asked, Kind
from redjob.demo.stack import Stack
from redjob.demo.trace import Start, starts
from redjob.store.aio import AsyncStore
from redjob.store.settings import settings_from_url

_EXTRA_START = re.compile(r"extra_start job=(\S+) attempt=(\d+) cause=(\w+)")


@dataclass(frozen=True)
class Outcome:
    """Everything that the checks and the table are made of."""

    asked: Asked
    infos: dict[str, JobInfo]
    starts: dict[str, list[Start]]
    explained: list[tuple[str, int, str]]  # job, attempt, cause: redjob's own log
    left: Counter[str]  # jobs per place, over all partitions

    def of(self, kind: Kind) -> list[tuple[JobInfo, list[Start]]]:
        """The jobs of a kind with their starts."""
        return [(self.infos[job_id], self.starts.get(job_id, [])) for job_id in kind.due_ms]

    def lateness_ms(self, kind: Kind) -> list[int]:
        """How long after its time each job of a kind was started first, least first."""
        return sorted(
            begun[0].at_ms - due_ms
            for job_id, due_ms in kind.due_ms.items()
            if (begun := self.starts.get(job_id))
        )


async def gather(client: AsyncClient, stack: Stack, asked: Asked) -> Outcome:
    """Read the outcome. Raises what Redis answers instead."""
    infos = {
        job_id: await client.info(job_id, queue=QUEUE)
        for kind in asked.kinds
        for job_id in kind.due_ms
    }
    by_job: defaultdict[str, list[Start]] = defaultdict(list)
    for start in starts(stack.trace):
        by_job[start.job_id].append(start)
    matches = (_EXTRA_START.search(line) for _, line in stack.said)
    explained = [(match[1], int(match[2]), match[3]) for match in matches if match]
    return Outcome(asked, infos, dict(by_job), explained, await _left(stack))


async def _left(stack: Stack) -> Counter[str]:
    store = AsyncStore(settings_from_url(stack.url))
    left: Counter[str] = Counter()
    try:
        keys = await store.open()
        for counts in await store.query_all([queue_counts(part, QUEUE) for part in keys.parts]):
            left["scheduled"] += counts.scheduled
            left["waiting"] += counts.ready + counts.held + counts.dispatched
            left["dead"] += counts.dead
    finally:
        await store.aclose()
    return left
