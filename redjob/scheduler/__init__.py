"""The scheduler: owns partitions and fires their jobs on time.

A node is a member at the quorum keys and holds leases of partitions there.  What it holds it opens:
it installs its fence, and from that moment's journal position on it knows the partition.  Its wheel
has the jobs of the next seconds, a loop sleeps until the next of them and fires it.

**Reading order.**  `node` puts the parts together.  `lease` (pure decisions) and `quorum` (their I/O)
say what is held; `holdings` keeps what is open; `takeover` opens, `rollback` tells what was lost since
this process had it open last.  `owner` is the state of one open partition: `window` peeks its `due` a
few seconds ahead, `tail` reads its journal, both feed the `wheel`.  `on_time` empties the wheel, `sweep`
finds what it missed and whether the partition is still what it was, `backlog` drains what is overdue;
both fire by `fire`.  `trim` removes journal entries and tombstones.  `server_clock` is Redis' time,
`exchange` and `outage` are how all of them talk to Redis and what they do when it does not answer.

**Model.**

- *Lease.*  One script renews a node and its partitions at each quorum key, every 0.25 s with a TTL of
  1 s; a majority decides.  A lease is trusted until (monotonic time before the request + TTL - margin):
  its TTL began later than that.  A partition belongs to the node that rendezvous hashing names among
  those that count; a joiner counts after 2 s; who should not have a partition stops working on it,
  then drops it, and the key grants it to who asks for it.
- *Fence.*  A lease is not safety: its holder may be stopped and wake up later.  Moves of jobs are one
  script each, repeated without harm, whoever sends them, so firing carries no fence.  Trimming does.
- *Held and open.*  Whatever is found wrong with an open partition (fenced, emptied, restarted server,
  broken journal, no answer) closes it; what is held and closed is opened again, from the beginning.
  Nothing is repaired in place, and no sleep outlives what it was based on.
- *Wheel.*  A copy, never the truth: nothing leaves `due` before it is in the stream, so a crash loses
  nothing, and a cancelled or rescheduled job is simply not there, or not yet due, when it is asked for.
- *Early* is decided by the script with the server's clock.  The node's estimate is a lower bound, so
  that what it asks for is due; it decides only when to ask.

**Invariants.**

- Open is a subset of held; two nodes may both have a partition open for a moment, which costs some
  ids that are answered "absent".
- A job of the window comes into the wheel by a peek or by the journal, perhaps by both, never by
  neither: the window is moved on before the peek is sent.  Where a page was full the wheel holds less
  than the window (`Slot.covered_ms`), and the journal adds up to there only.
- `owner.seq` and `owner.tag` chain: an entry that does not follow on the one before closes the partition.
- A queue is drained by one worker at a time, and ids that came out of the wheel are left out of it.
- On-time jobs wait for nothing of a backlog but the scripts that the server is at: it serves
  connections in turn, and a backlog has two.

**Failures.**

| what happens | what follows |
|---|---|
| a node dies | its leases end within 1 s; another opens the partitions, in all under 2 s |
| a node stops in good order | it gives its leases up; another opens them at its next beat |
| a node is stopped and wakes up | its trust has ended; it waits a beat before it judges others; its trim is FENCED |
| the quorum keys do not answer | the node keeps what it has until its trust ends, then lets go |
| the quorum keys were emptied | nobody judges others before a beat; who came first keeps all for 2 s |
| Redis restarts | scripts answer HOLD until a fence with the new run_id; everything is read again |
| Redis restarts or fails over | `server_replaced` once: its last writes may be lost unread |
| Redis lost its newest writes | `journal_rolled_back`, and a line for each job that may start again or is gone |
| Redis was emptied | `redis_emptied` for each partition; a new incarnation is opened |
| Redis is away or loading | one line when it goes, one when it is back; open partitions are closed |
| Redis is full | leases, trim, take and finish go on; what is due waits |
| the server's clock jumps | the estimate follows at the next reply; what was asked too early is put back |
| the journal was trimmed by another, or forked | the partition is closed and opened again |
| a record is gone | `no_record` once; the drain reaches past it, the sweeper moves the job to `lost` |
| a key has the wrong type | its queue rests for a second at a time; the others go on |
| more is due than the wheel or a page holds | the backlog drains it, page by page |
"""

from redjob.scheduler.node import SchedulerNode

__all__ = ["SchedulerNode"]
