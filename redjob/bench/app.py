"""The app that a benchmark's workers run: jobs that count themselves and do nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from redjob.app import Redjob
from redjob.bench.tally import Tally

if TYPE_CHECKING:
    from redjob.bound import BoundTask

QUEUE = "bench"
TALLY = "REDJOB_BENCH_TALLY"  # names the file in the worker's environment
_tallies: list[Tally] = []


async def noop(index: int, pad: str) -> None:
    """Count job number `index`; `pad` gives the payload its size."""
    del pad
    if not _tallies:
        _tallies.append(Tally.attach(Path(os.environ[TALLY])))
    _tallies[0].hit(index)


def noop_of(app: Redjob) -> BoundTask[[int, str], object]:
    """Register the task with an app."""
    return app.task(queue=QUEUE)(noop)


app = Redjob.from_env()
noop_of(app)
