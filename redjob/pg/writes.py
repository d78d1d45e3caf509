"""The journal writer's statements: rows in as arrays, the partitions that may not be written out.

A batch is one statement and so one transaction: its first part moves the checkpoints of those
partitions whose epoch and nonce are the caller's, and every other part leaves out the rest.
"""

from __future__ import annotations

from datetime import date
from typing import NamedTuple


class Checkpoint(NamedTuple):
    """How far a partition's journal is written, and by whom."""

    partition: int
    epoch: int
    nonce: str
    seq: int
    tag: str


class Change(NamedTuple):
    """What has become of a job that is in `jobs`: None is as before.

    `place` is S, T or F; worker, started and cancel are only kept while it is T; a time 0 is none.
    """

    partition: int
    id: str
    home: date | None
    place: str
    run_at: int | None
    jseq: int
    tag: str | None
    attempt: int | None
    past: str | None
    worker: str | None
    started: int | None
    cancel: int | None


class NewJob(NamedTuple):
    """A job that was enqueued: as `Change`, and what never changes."""

    partition: int
    id: str
    home: date | None
    place: str
    run_at: int | None
    jseq: int
    tag: str | None
    attempt: int | None
    past: str | None
    worker: str | None
    started: int | None
    cancel: int | None
    created: int
    queue: str | None
    tenant: str
    task: str
    priority: int
    doc: str


class Run(NamedTuple):
    """The end of an attempt, or of a job (`final`: it leaves `jobs`).

    None is taken from the job's row: all that was told before this batch.
    """

    partition: int
    id: str
    home: date | None
    jseq: int
    final: bool
    state: str
    attempt: int
    worker: str | None
    started: int | None
    ended: int
    outcome: str
    error: str | None
    queue: str | None
    tenant: str | None
    task: str | None
    doc: str | None
