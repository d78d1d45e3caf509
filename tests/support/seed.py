"""Jobs for tests: their records and what calls need to know of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from redjob.calls.jobs import NewJob
from redjob.calls.work import Beat, End
from redjob.codec import encode_past, encode_record, encode_stub, head_of, home_of
from redjob.ids import keyed_job_id, new_id
from redjob.model import JobState, Options, Past, Record, Stub

QUEUE = "q"
RESULT = b'{"state":"COMPLETED","ended":1,"attempt":1}'
VERDICT = b'{"state":"FAILED","ended":1,"attempt":1}'
STUB_TTL_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a test: what its client knew when it was enqueued."""

    id: str
    queue: str
    tenant: str
    priority: int
    run_at_ms: int
    doc: bytes

    @property
    def new(self) -> NewJob:
        """The job as enqueue takes it."""
        return NewJob(self.id, self.run_at_ms, self.doc)

    @property
    def head(self) -> bytes:
        """The start of the record, as finish and heartbeat take it."""
        return head_of(self.doc)

    @property
    def home(self) -> str:
        """The day in journal lines."""
        return self.doc[9:19].decode()

    @property
    def text(self) -> str:
        """The record as dumps show it."""
        return self.doc.decode()

    def line(self, rest: str) -> str:
        """A journal line of this job."""
        return f"{self.id} {self.home} {rest}"

    def stub(self, state: JobState = JobState.COMPLETED) -> bytes:
        """What is to stay of the job for its key, as finish and cancel take it."""
        return encode_stub(
            Stub(state=state, created=int(self.doc[31:44]), ended=1, body_hash="h"), STUB_TTL_MS
        )

    def end(
        self,
        outcome: str,
        attempt: int = 1,
        *,
        delay_ms: int = 1000,
        result_ttl_ms: int = 0,
        past: Past | None = None,
        stub: bytes = b"",
    ) -> End:
        """An end of one attempt, with the data that its outcome needs."""
        encoded = encode_past(past or _PAST[outcome])
        data = {"F": encoded + b"\n" + VERDICT, "C": RESULT, "X": RESULT}.get(outcome, encoded)
        number = delay_ms if outcome in {"R", "Z"} else result_ttl_ms
        return End(self.id, self.queue, attempt, outcome, self.head, number, data, stub)

    def beat(self, attempt: int = 1, *, progress: bytes = b"", past: bytes = b"") -> Beat:
        """A heartbeat of one attempt."""
        return Beat(self.id, self.queue, attempt, self.head, progress, past)


_PAST = {
    "R": Past(failures=1, last="failed"),
    "Z": Past(last="snoozed"),
    "B": Past(last="handed_back"),
    "F": Past(failures=5, last="failed", dead="failure"),
    "C": Past(),
    "X": Past(),
}


def past_json(outcome: str, past: Past | None = None) -> str:
    """The past that `Job.end` gives with this outcome, as dumps show it."""
    return encode_past(past or _PAST[outcome]).decode()


class Seeder:
    """Makes jobs with ids that differ and are the same in every run."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._count = 0

    def job(
        self,
        now_ms: int,
        *,
        queue: str = QUEUE,
        tenant: str = "default",
        priority: int = 5,
        run_at_ms: int = 0,
        key: str | None = None,
        payload: bytes = b"{}",
    ) -> Job:
        """A job created at `now_ms`; with a key its id is derived from it."""
        self._count += 1
        job_id = (
            keyed_job_id(self._namespace, tenant, key)
            if key
            else new_id(now_ms, self._count % 16_384, self._count)
        )
        keyed: dict[str, Any] = {"options": Options(key=key), "body_hash": "h"} if key else {}
        record = Record(
            home=home_of(run_at_ms or now_ms),
            created=now_ms,
            run_at=run_at_ms,
            task="task",
            queue=queue,
            tenant=tenant,
            priority=priority,
            payload=msgspec.Raw(payload),
            **keyed,
        )
        return Job(job_id, queue, tenant, priority, run_at_ms, encode_record(record))
