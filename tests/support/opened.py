"""A namespace that is open, with the test itself in the place of its workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import msgspec

from redjob.calls import owner, work
from redjob.calls.owner import Fence
from redjob.codec import decode_record, encode_outcome, encode_past, encode_stub, head_of
from redjob.ids import new_token
from redjob.model import ErrorInfo, JobState, Options, Outcome, Past, Record, Stub
from redjob.store.namespace import open_query
from redjob.store.settings import settings_from_url
from redjob.store.sync import SyncStore
from tests.support.connect import connect, remove

if TYPE_CHECKING:
    from types import TracebackType

    from redjob.keys import PartitionKeys

WORKER = "worker1"
LEASE_MS = 30_000


class Opened:
    """All partitions of a namespace, fenced by a token of the test's own."""

    def __init__(
        self, url: str, namespace: str, *, partitions: int = 16, depth_limit: str = "none"
    ) -> None:
        self.url = url
        self.namespace = namespace
        self.redis: Any = connect(url)
        self.store = SyncStore(settings_from_url(url), namespace)
        self.store.query(open_query(namespace, partitions))
        self.keys = self.store.keys
        for part in self.keys.parts:
            token = Fence(1, "nonce")
            self.store.call(
                owner.fence(part, token, incarnation="inc", depth_limit=depth_limit, grace_ms=0)
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the namespace: shared servers stay small."""
        remove(self.redis, f"{self.namespace}:")
        self.redis.close()
        self.store.close()

    # looking

    def records(self) -> dict[str, Record]:
        """All unfinished or dead jobs of the namespace, by id."""
        names: list[Any] = list(self.redis.scan_iter(f"{self.namespace}:{{*}}:job:*", count=10_000))
        docs: list[Any] = [self.redis.get(name) for name in names]
        return {
            name.decode()[-36:]: decode_record(doc)
            for name, doc in zip(names, docs, strict=True)
            if doc and not doc.startswith(b'{"state":')
        }

    def entries(self, queue: str) -> int:
        """How many entries the streams of a queue hold."""
        return sum(int(self.redis.xlen(part.queue(queue).stream)) for part in self.keys.parts)

    def seqs(self) -> list[int]:
        """Where the journals stand: what has written nothing leaves them as they are."""
        return [int(self.redis.hget(part.meta, "seq") or 0) for part in self.keys.parts]

    # the worker's part

    def begin(self, job_id: str, queue: str) -> Record:
        """Start a job by its entry; returns its record."""
        part = self.keys.of_job(job_id)
        entry: Any = self.redis.hget(part.dispatched, job_id)
        assert entry is not None, f"{job_id} is not dispatched"
        reply = self.store.call(
            work.begin(
                part, queue, WORKER, [(entry.decode(), job_id)], lease_ms=LEASE_MS, tag=new_token()
            )
        )
        assert reply.codes == "T"
        return self.record(part, job_id)

    def record(self, part: PartitionKeys, job_id: str) -> Record:
        """The record of a job."""
        doc: Any = self.redis.get(part.job(job_id))
        return decode_record(doc)

    def complete(self, job_id: str, queue: str, result: bytes = b"null") -> None:
        """Run a job to its good end."""
        record = self.begin(job_id, queue)
        outcome = Outcome(
            state=JobState.COMPLETED,
            ended=self.store.now_ms(),
            attempt=1,
            result=msgspec.Raw(result),
        )
        ttl_ms = round(record.options.result_ttl_s * 1000)
        self._finish(job_id, record, "C", ttl_ms, encode_outcome(outcome), JobState.COMPLETED)

    def fail(self, job_id: str, queue: str, error: ErrorInfo) -> None:
        """Run a job to its death."""
        record = self.begin(job_id, queue)
        past = Past(failures=1, last="failed", dead="failure", error=error)
        outcome = Outcome(state=JobState.FAILED, ended=self.store.now_ms(), attempt=1, error=error)
        data = encode_past(past) + b"\n" + encode_outcome(outcome)
        self._finish(job_id, record, "F", 60_000, data, JobState.FAILED)

    def expire(self, job_id: str, queue: str) -> None:
        """End a job that a worker took too late."""
        record = self.begin(job_id, queue)
        outcome = Outcome(state=JobState.EXPIRED, ended=self.store.now_ms(), attempt=1)
        self._finish(job_id, record, "X", 60_000, encode_outcome(outcome), JobState.EXPIRED)

    def _finish(
        self, job_id: str, record: Record, outcome: str, number: int, data: bytes, state: JobState
    ) -> None:
        part = self.keys.of_job(job_id)
        doc: Any = self.redis.get(part.job(job_id))
        end = work.End(
            job_id, record.queue, 1, outcome, head_of(doc), number, data, _stub(record, state)
        )
        assert self.store.call(work.finish(part, WORKER, [end], tag=new_token())).codes == "M"


def options_of(opened: Opened, job_id: str) -> Options:
    """The options stored with a job."""
    return opened.records()[job_id].options


def _stub(record: Record, state: JobState) -> bytes:
    if record.body_hash is None:
        return b""
    stub = Stub(state=state, created=record.created, ended=1, body_hash=record.body_hash)
    return encode_stub(stub, round(record.options.key_window_s * 1000))
