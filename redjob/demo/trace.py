"""What the demo's tasks leave behind: one line per start and end, in one file of all workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from redjob.clock import SystemClock

VARIABLE = "REDJOB_DEMO_TRACE"  # names the file to the workers


class Start(NamedTuple):
    """One start of an attempt: when (wall ms), by which process."""

    job_id: str
    attempt: int
    at_ms: int
    pid: int


def leave(event: str, job_id: str, attempt: int) -> None:
    """Append a line to the trace, in one write: lines of several processes never mix."""
    line = f"{event} {job_id} {attempt} {SystemClock().wall_ms()} {os.getpid()}\n"
    descriptor = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def starts(trace: Path) -> list[Start]:
    """Every start so far, in order."""
    return list(_of("start", trace))


def ends(trace: Path) -> list[Start]:
    """Every end of a task so far, in order."""
    return list(_of("end", trace))


def _of(event: str, trace: Path) -> Iterator[Start]:
    if not trace.exists():
        return
    for line in trace.read_text().splitlines():
        what, job_id, attempt, at_ms, pid = line.split()
        if what == event:
            yield Start(job_id, int(attempt), int(at_ms), int(pid))
