"""What the tasks themselves say: a file that workers and the benchmark map into memory.

Each job has a byte that counts its starts and eight that hold the first one, so lost and doubled
jobs are counted exactly, and counting costs no traffic to Redis.
"""

from __future__ import annotations

import mmap
import struct
import time
from pathlib import Path
from typing import NamedTuple, Self

_START = struct.Struct("<q")
_SLOT = 1 + _START.size
_MOST = 255  # starts that a byte can count


class Totals(NamedTuple):
    """How often jobs were started: `lost` never, `duplicated` is the number of starts too many."""

    done: int
    lost: int
    duplicated: int


class Tally:
    """Counts of `jobs` jobs, numbered from 0. Times are wall clock, ns."""

    def __init__(self, path: Path, jobs: int) -> None:
        """Map a file that `create` made."""
        self.path = path
        self.jobs = jobs
        self._starts_at = jobs
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    @classmethod
    def create(cls, path: Path, jobs: int) -> Self:
        """Make a file in which nothing has started."""
        with path.open("wb") as file:
            file.truncate(jobs * _SLOT)
        return cls(path, jobs)

    @classmethod
    def attach(cls, path: Path) -> Self:
        """Map a file whose number of jobs follows from its size."""
        return cls(path, path.stat().st_size // _SLOT)

    def hit(self, index: int) -> None:
        """A job has started; called by the task itself."""
        now = time.time_ns()
        mapped = self._map
        count = mapped[index]
        if count < _MOST:
            mapped[index] = count + 1
        if count == 0:
            _START.pack_into(mapped, self._starts_at + index * _START.size, now)

    @property
    def done(self) -> int:
        """How many jobs have started."""
        return self.jobs - self._counts(range(self.jobs)).count(0)

    def totals(self, indices: range | None = None) -> Totals:
        """Count the jobs of a range without steps, or all."""
        counts = self._counts(range(self.jobs) if indices is None else indices)
        lost = counts.count(0)
        done = len(counts) - lost
        return Totals(done, lost, sum(counts) - done)

    def starts_ns(self, indices: range) -> list[int | None]:
        """The first start of each job, None for those that have not started."""
        counts = self._counts(indices)
        at = self._starts_at + indices.start * _START.size
        times = struct.unpack_from(f"<{len(indices)}q", self._map, at)
        return [when if count else None for when, count in zip(times, counts, strict=True)]

    def span_s(self, indices: range | None = None) -> float:
        """Seconds from the first start to the last one."""
        starts = self.starts_ns(range(self.jobs) if indices is None else indices)
        known = [when for when in starts if when is not None]
        return (max(known) - min(known)) / 1e9 if known else 0.0

    def close(self) -> None:
        """Unmap the file."""
        self._map.close()

    def _counts(self, indices: range) -> bytes:
        return self._map[indices.start : indices.stop]
