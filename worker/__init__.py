"""The worker service: takes jobs, runs them under a lease, reports how they ended.

Model
-----
A worker process has a random name and `concurrency` slots. It asks partitions for as many jobs as
it has free slots (`fetch`), so what it has taken it starts at once and a long job holds up nothing.
`take` claims a job and writes its lease in one script; `intake` decides by the record whether it may
start; `run` starts it, as a task of the event loop or in a thread of `pool`; `outcome` says what its
end means; `finish` reports ends, `heartbeat` keeps the leases of long jobs alive from a thread of its
own. `wake` waits at the bells while there is nothing to do, and every second everything is looked at,
because a token can die with the worker that drew it. `node` puts the parts together.

take and finish batch by themselves: while one call of a partition is under way the next one
collects. So batches are large when there is much to do and small when there is little, and no job
waits for a batch to fill.

Invariants
----------
- Jobs that run never exceed the slots. A slot is free again when its task (or thread) has ended.
- An attempt that was taken is either reported through `finish`, or left to its lease because this
  process ended or a script refused it for good (logged). Nothing else drops an attempt.
- Of each partition one take is under way at a time. One whose reply was lost is asked again with
  the same request id until it is answered: the jobs it started are then known, not lost.
- A report is repeated with the same request id until it is answered. Until then the attempt keeps
  its place in `attempts`, and with that its heartbeats.
- The worker never counts crashes, never compares clocks with Redis for a lease, and never decides
  that a job is lost: scripts do.
- A second start that is not an ordinary retry is told by one line
  `extra_start job=<id> attempt=<the one that ended unfinished> cause=<word>`; and who starts a job
  after a crash says `starts_again` with the same fields, since the sweeper may have died first.

What fails, and what happens
----------------------------
==============================  =====================================================================
worker killed                   the sweeper reclaims its leases (cause=lease_expired, counts a crash)
reply of take lost              the same request again; records are then read with MGET
reply of finish lost            the same request again, answered `=`; on a restarted server the
                                finishes of the last 30 s are repeated too
event loop blocked              the heartbeat thread goes on; C code that keeps the GIL stops it too
lease lost                      async task cancelled, thread flagged; a success is reported all the
                                same and counts if nothing newer runs or has ended
Redis away, full, loading,      takers and reports wait and ask again; results stay in memory
read-only, busy
server restarted, no owner yet  HOLD: asked again after 50 ms, then more slowly
group, scripts or keys gone     take creates the group, scripts are sent again, NOTREADY is asked again
record or payload not readable  dead at once (rejected), the raw record stays
task raises anything at all     a failure: also SystemExit, and errors whose text cannot be encoded
time limit, async               the task is cancelled; one that swallows that keeps its slot
time limit, thread              flagged, and after a grace reported as failed; the thread, which
                                nothing can stop, keeps its slot until it ends
stop, grace over                tasks cancelled and handed back: costs no failure and no crash
a loop of the worker breaks     logged with its traceback, started again with back-off
==============================  =====================================================================
"""

from redjob.worker.counters import Counters
from redjob.worker.node import WorkerNode

__all__ = ["Counters", "WorkerNode"]
