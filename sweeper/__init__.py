"""The sweeper: what no other process will do for a job is done here; beside scheduler and worker.

Model
    A sweeper looks at every partition of the namespace, in two loops. The *tick* (1 s) ends attempts
    whose lease ran out and fires jobs that are overdue and that no owner fires. The *scan* (30 s)
    compares the places with each other, and drops what has been dead for long enough.
    It decides by the server's clock alone, and each decision is a function of what it has read
    (`verdict`); the script that carries it out looks again and refuses what has changed.

Invariants
    - No state that is not terminal lacks a timer: RUNNING has its lease, SCHEDULED its due time,
      DISPATCHED its entry and the time since somebody was given it. Whatever the timer's own process
      does, the sweeper looks at all of them.
    - An attempt is ended only when its lease is over by the server's clock, and then once: by the
      `<attempt> <worker>` that was read.
    - Every second start that it causes has one line in its log:
      `extra_start job= attempt= cause=lease_expired|never_begun|entry_lost`.
    - Crashes are counted apart from failures. A job that kills its workers ends dead, with its record.

Several sweepers may run at once. Nothing is divided between them yet: every act is atomic and
idempotent by job, so a second sweeper costs reads and changes nothing. A lease per partition, as
owners have, would only save that work.

What fails, and what happens
    =========================================  ======================================================
    a worker is killed                         its leases run out; R after crash backoff, or F
    a worker is slow, its lease ran out        the same; its late success still counts (finish)
    every sweeper was away for 10 s            reclaim answers GRACE for one lease time: workers that
                                               could not be heard meanwhile are heard first
    Redis restarted or failed over             HOLD until an owner has checked it, then one grace
    the sweeper dies in the middle             each script was whole; another one, or it, comes again
    a reply is lost                            the call is repeated with its request id
    owners are gone, or hang                   overdue jobs are fired here
    an owner is busy with a long backlog       left alone while the head of its queue moves
    a consumer dies between read and begin     a new entry after never_begun_s
    a stream, lease or depth was damaged       the scan gives a new entry, ends the attempt, counts
    a record is garbage                        told once; it stops no other job
    a record is gone (deleted, evicted)        put back from the entry that carries it, else the job
                                               goes to `lost`, with one line: `lost job= place=`
    a paused queue fills with what was         settled by the scan, as nobody takes
    cancelled in it
    a key has the wrong type                   told once; every other key is swept
    =========================================  ======================================================
"""

from redjob.sweeper.node import SweeperNode
from redjob.sweeper.swept import Swept

__all__ = ["SweeperNode", "Swept"]
