"""What a worker has done since it started, as plain numbers to be shown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Jobs by what became of them; a job counts when Redis has answered its report.

    `late` were accepted although the lease was gone, `lost` were not, `unplaced` were in no place
    at all (Redis had lost them), `refused` could not be reported and were left to their lease.
    """

    taken: int = 0
    completed: int = 0
    retried: int = 0
    snoozed: int = 0
    dead: int = 0
    expired: int = 0
    cancelled: int = 0
    handed_back: int = 0
    late: int = 0
    lost: int = 0
    unplaced: int = 0
    refused: int = 0
