"""The scheduler: owns partitions and fires their jobs on time.

Model.  A node is a member at the quorum keys and holds leases of partitions there (`lease`, `quorum`).
What it holds it takes over (`takeover`): it reads the journal's position, installs its fence (epoch and
nonce), fills the wheel with what is due soon (`window`) and tails the journal from that position
(`tail`).  `on_time` sleeps until the wheel's next item and fires it; `sweep` looks every 100 ms for what
the wheel missed and hands it to `backlog`; `trim` cuts the journal behind the reader.

Invariants.
- A job is removed from `due` by the script that puts it into the stream and by nothing else: the
  wheel is a copy, and losing it loses nothing.
- Early is decided by the server's clock inside the script; the node's estimate (`server_clock`) is a
  lower bound and decides only when to ask.
- `owner.seq` and `owner.tag` chain: an entry that does not follow closes the partition.
- A job of the window comes into the wheel by a peek or by the journal, perhaps by both, never by neither.
- What is not idempotent (trim, tombstones) carries the fence; firing does not need it.

Failures.
| what happens | what follows |
|---|---|
| the node dies | its leases end after at most 1 s; another node takes over, fills its wheel and fires |
| the node is stopped and wakes up | its trust has ended by its own clock; its fenced calls have no effect |
| two nodes both fire | a job moves once: the second is answered "absent" |
| Redis restarts (AOF) | scripts answer HOLD until the owner has fenced again with the new run_id |
| Redis lost its newest writes | the journal's position went back: logged with the ids concerned |
| Redis was emptied | NOTREADY; logged as an error with what was known; a new incarnation is opened |
| Redis is away | one log line; everything read before is dropped and read again |
| no quorum key answers | the node keeps what it owns until its trust ends, then lets go |
"""

from redjob.scheduler.node import SchedulerNode

__all__ = ["SchedulerNode"]
