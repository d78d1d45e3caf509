"""What the letters of finish mean: counters, and a log line for each that is not as it was asked."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from redjob.calls.work import End
from redjob.worker.attempt import Attempt
from redjob.worker.counters import Counters

log = logging.getLogger("redjob.worker")

_COUNTED = {
    "C": "completed",
    "R": "retried",
    "Z": "snoozed",
    "F": "dead",
    "X": "expired",
    "B": "handed_back",
}


def count_answers(counters: Counters, reports: Sequence[tuple[Attempt, End]], codes: str) -> None:
    """Count a report's answers, a letter per job, and tell what is not as it was asked."""
    if codes.count("M") == len(codes) and all(end.outcome == "C" for _, end in reports):
        counters.completed += len(codes)  # nearly always
        return
    for (attempt, end), code in zip(reports, codes, strict=True):
        _count_one(counters, attempt, end, code)


def _count_one(counters: Counters, attempt: Attempt, end: End, code: str) -> None:
    if code in "M=":
        name = _COUNTED[end.outcome]
        setattr(counters, name, getattr(counters, name) + 1)
        if end.outcome == "F":
            cause = "failure" if attempt.began else "rejected"
            log.warning("dead job=%s attempt=%d cause=%s", end.id, end.attempt, cause)
    elif code == "K":
        counters.cancelled += 1
        log.info("cancelled job=%s attempt=%d", end.id, end.attempt)
    elif code == "V":
        counters.completed += 1
        counters.late += 1
        log.warning("late_success job=%s attempt=%d", end.id, end.attempt)
    elif code == "L":
        counters.lost += 1
        tell_lease_lost(attempt)
    elif code == "N":
        counters.unplaced += 1
        log.warning(
            "unplaced job=%s attempt=%d outcome=%s cause=rollback",
            end.id, end.attempt, end.outcome,
        )  # fmt: skip
    else:
        counters.refused += 1
        log.error(
            "report_refused job=%s attempt=%d outcome=%s cause=damaged_key",
            end.id, end.attempt, end.outcome,
        )  # fmt: skip


def tell_lease_lost(attempt: Attempt) -> None:
    """Log that an attempt does not count any more, once: the job was started again, or will be."""
    if not attempt.lease_told:
        attempt.lease_told = True
        log.warning("extra_start job=%s attempt=%d cause=lease_lost", attempt.id, attempt.attempt)


def tell_repeated(ends: Sequence[End], codes: str) -> None:
    """Tell what a restarted server had lost, by the answers to a repeated report."""
    for end, code in zip(ends, codes, strict=True):
        if code in "MVK":
            log.warning("rolled_back job=%s attempt=%d code=%s", end.id, end.attempt, code)
        elif code == "L":
            log.warning("extra_start job=%s attempt=%d cause=rollback", end.id, end.attempt)
