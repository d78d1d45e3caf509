"""One call of each builder, for tests that hold for all scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from redjob.calls import jobs, owner, sweep, work
from redjob.calls.owner import Committed, Fence, Parked
from redjob.calls.sweep import Expired
from tests.support.seed import Seeder

if TYPE_CHECKING:
    from redjob.calls.call import Call
    from redjob.keys import PartitionKeys

_NOW_MS = 1_790_000_000_000
_TOKEN = Fence(1, "nonce")


class Sample(NamedTuple):
    """A call, its queues in their order, and the jobs whose keys it passes."""

    call: Call[Any]
    queues: tuple[str, ...]
    ids: tuple[str, ...]


def sample_calls(part: PartitionKeys, namespace: str = "redjob") -> list[Sample]:
    """A call of each builder; the jobs exist nowhere."""
    seeder = Seeder(namespace)
    a, b, c = (seeder.job(_NOW_MS, queue=queue) for queue in ("qa", "qb", "qa"))
    ids, all_ids = (a.id, c.id), (a.id, b.id, c.id)
    ends = [job.end("C") for job in (a, b, c)]
    expired = [Expired(b"1 w", job.end("R")) for job in (a, b, c)]
    beats = [a.beat(), b.beat(), c.beat()]
    entries = [("1-1", a.id), ("1-2", c.id)]
    seen = [Parked(job_id, 1, 5, "default") for job_id in ids]
    one, both = ("qa",), ("qa", "qb")
    return [
        Sample(jobs.enqueue(part, "qa", "default", 5, [a.new, c.new], "t"), one, ids),
        Sample(jobs.cancel(part, "qa", a.id, b"", "t"), one, (a.id,)),
        Sample(jobs.reschedule(part, "qa", a.id, seen_ms=1, run_at_ms=2, tag="t"), one, (a.id,)),
        Sample(jobs.replay(part, "qa", a.id, died_ms=1, past=b"{}", tag="t"), one, (a.id,)),
        Sample(jobs.locate(part, "qa", a.id), one, (a.id,)),
        Sample(work.take(part, ["qa", "qb"], "w", 10, lease_ms=1, tag="t"), both, ()),
        Sample(work.begin(part, "qa", "w", entries, lease_ms=1, tag="t"), one, ()),
        Sample(work.heartbeat(part, "w", beats, lease_ms=1, tag="t"), both, all_ids),
        Sample(work.finish(part, "w", ends, tag="t"), both, all_ids),
        Sample(owner.fence(part, _TOKEN, incarnation="", depth_limit="none", grace_ms=1), (), ()),
        Sample(owner.fire(part, "qa", ids, tag="t"), one, ids),
        Sample(owner.park(part, "qa", seen, tag="t"), one, ids),
        Sample(owner.release(part, "qa", ids, tag="t"), one, ids),
        Sample(owner.trim(part, _TOKEN, entry=(1, "t"), before=1, keep_ms=1, ids=ids), (), ()),
        Sample(
            owner.trim(
                part,
                _TOKEN,
                entry=(1, "t"),
                before=1,
                keep_ms=1,
                committed=Committed(1, 1, [(1, "wt")]),
            ),
            (),
            (),
        ),
        Sample(sweep.reclaim(part, expired, grace_ms=1, tag="t"), both, all_ids),
        Sample(
            sweep.requeue(part, "qa", [(a.id, "1-1"), (c.id, "")], grace_ms=1, tag="t"), one, ids
        ),
        Sample(sweep.lose(part, ["qa", "qb"], ids, tag="t"), both, ids),
        Sample(sweep.purge(part, "qa", [(a.id, b""), (c.id, b"")], keep_ms=1, tag="t"), one, ids),
        Sample(sweep.recount(part, "qa", ["1-1", "1-2"]), one, ()),
        Sample(sweep.forget(part, "qa", ["t:a", "t:b"]), one, ()),
        Sample(owner.renew(namespace, 0, "node", ttl_ms=1, want=[1], drop=[2]), (), ()),
    ]
