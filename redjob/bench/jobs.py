"""The jobs that benchmarks enqueue: numbered, of a given size, now or at a time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec

from redjob.bench.app import QUEUE
from redjob.bench.stage import Stage
from redjob.client import Client
from redjob.clock import SystemClock
from redjob.codec import encode_record, home_of
from redjob.errors import RedjobError
from redjob.job import EnqueueResult, Job
from redjob.model import Record
from redjob.payload import encode_payload
from redjob.submit import JobSpec

PAYLOAD_BYTES = 200
TASK = "redjob.bench.app.noop"
_PAGE = 5_000
_OVERHEAD = len('{"index":,"pad":""}')
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def arguments(index: int, size: int = PAYLOAD_BYTES) -> tuple[int, str]:
    """The arguments of a job whose payload has `size` bytes of JSON."""
    return index, "x" * (size - _OVERHEAD - len(str(index)))


def doc_of(index: int, size: int = PAYLOAD_BYTES, run_at_ms: int = 0) -> bytes:
    """The record that a client makes of such a job."""
    now_ms = SystemClock().wall_ms()
    _, pad = arguments(index, size)
    record = Record(
        home=home_of(run_at_ms or now_ms),
        created=now_ms,
        run_at=run_at_ms,
        task=TASK,
        queue=QUEUE,
        payload=msgspec.Raw(encode_payload({"index": index, "pad": pad})),
    )
    return encode_record(record)


def at(wall_ms: int) -> datetime:
    """A wall time in ms, exactly."""
    return _EPOCH + timedelta(milliseconds=wall_ms)


def enqueue_delayed(
    stage: Stage, jobs: int, size: int, due_ms: Callable[[int], int], start: int = 0
) -> list[str]:
    """Enqueue jobs by the thin client for their times (wall ms, by number); return their ids.

    Numbers count from `start`.

    Raises what kept one of them out.
    """
    ids: list[str] = []
    with Client(stage.server.url, namespace=stage.namespace) as client:
        for first in range(start, start + jobs, _PAGE):
            specs: list[JobSpec] = []
            for number in range(first, min(start + jobs, first + _PAGE)):
                index, pad = arguments(number, size)
                payload = {"index": index, "pad": pad}
                specs.append(JobSpec(TASK, payload, run_at=at(due_ms(number)), queue=QUEUE))
            ids += [job.id for job in accepted(client.enqueue_many(specs))]
    return ids


def accepted(results: list[EnqueueResult[Job]]) -> list[Job]:
    """The jobs of results. Raises what kept one of them out."""
    jobs: list[Job] = []
    for result in results:
        if result.job is None:
            raise result.error or RedjobError("a job was not accepted")
        jobs.append(result.job)
    return jobs
