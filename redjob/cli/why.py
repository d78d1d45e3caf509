"""Why a job does not run, in a sentence: a function of the job and of what is around it; under job."""

from __future__ import annotations

from typing import NamedTuple

from redjob.cli.output import moment
from redjob.model import JobInfo, JobState

_SEEN_MS = 60_000  # a worker that was heard no longer ago than this counts as there
_SOON_MS = 1000  # an overdue job that an owner has not fired by then is late


class Around(NamedTuple):
    """What is around a job, by the server's clock: its partition, its queue and who is there."""

    now_ms: int
    partition: int
    owner: str | None
    checked: bool  # the partition's owner has checked the server since it started
    sweeper_seen_ms: int | None
    waiting: int  # entries in its stream
    paused: bool
    workers: list[tuple[str, int]]


def why_not_running(job: JobInfo, around: Around) -> str:
    """Return the reason in one sentence that begins with where the job is."""
    match job.state:
        case JobState.SCHEDULED:
            return _scheduled(job, around)
        case JobState.DISPATCHED:
            return _dispatched(job, around)
        case JobState.RUNNING:
            return _running(job, around)
        case JobState.WAITING:
            return "waits for the steps of its workflow that come before it"
        case JobState.FAILED if job.task is not None:
            reason = f": {job.error.type}: {job.error.message}" if job.error else ""
            return (
                f"dead since {moment(job.ended_ms)} after {_count(job.attempt, 'attempt')}"
                f"{reason}; `redjob job replay {job.id}` runs it again"
            )
        case _:
            return f"has ended: {job.state}" + (
                f" at {moment(job.ended_ms)}" if job.ended_ms else ""
            )


def _scheduled(job: JobInfo, around: Around) -> str:
    due_ms = job.run_at_ms or 0
    left_ms = due_ms - around.now_ms
    again = ""
    if job.attempt:
        kind = job.error.type if job.error else "no error"
        again = f" (attempt {job.attempt} ended with {kind})"
    if left_ms > 0:
        return f"scheduled: due at {moment(due_ms)}, in {_span(left_ms)}{again}"
    late = f"scheduled and due since {_span(-left_ms)}{again}"
    if around.owner is None:
        return (
            f"{late}, but no scheduler owns partition {around.partition}: start `redjob scheduler`"
        )
    if not around.checked:
        return f"{late}, but the server restarted and its owner has not checked it yet"
    if -left_ms <= _SOON_MS:
        return f"{late}: its owner fires it any moment"
    return f"{late}, although {around.owner} owns partition {around.partition}: see its log"


def _dispatched(job: JobInfo, around: Around) -> str:
    if around.paused:
        return f"dispatched, but queue {job.queue} is paused"
    if job.held_by == "lost":
        return "dispatched, but found in no place: the sweeper gives it a new entry"
    behind = f"queue {job.queue} has {around.waiting} waiting in partition {around.partition}"
    alive = [name for name, seen_ms in around.workers if around.now_ms - seen_ms <= _SEEN_MS]
    if not alive:
        return (
            f"dispatched, and no worker was heard in the last minute ({behind}): "
            f"start `redjob worker app:app -Q {job.queue}`"
        )
    if not around.checked:
        return "dispatched, but the server restarted and its owner has not checked it yet"
    if job.held_by:
        return f"ready, held back by {job.held_by} until the stream has room: {behind}"
    return (
        f"dispatched: {behind}; {_count(len(alive), 'worker')} there, "
        f"busy or not serving queue {job.queue}"
    )


def _running(job: JobInfo, around: Around) -> str:
    left_ms = (job.lease_until_ms or 0) - around.now_ms
    asked = ", asked to stop" if job.cancel_requested_ms else ""
    it_runs = f"it runs: attempt {job.attempt} on worker {job.worker}{asked}"
    if left_ms >= 0:
        return f"{it_runs}, its lease holds for {_span(left_ms)}"
    lost = f"{it_runs}, but its lease ran out {_span(-left_ms)} ago"
    seen_ms = around.sweeper_seen_ms
    if seen_ms is None or around.now_ms - seen_ms > 10_000:
        return f"{lost} and no sweeper is there to end it: start `redjob sweeper`"
    return f"{lost}: the sweeper is about to end this attempt"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _span(ms: int) -> str:
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, hours, days = seconds / 60, seconds / 3600, seconds / 86400
    if minutes < 60:
        return f"{minutes:.0f} min"
    return f"{hours:.1f} h" if hours < 48 else f"{days:.0f} days"
