"""The files that a run leaves behind: what tasks write about themselves, and redjob's log lines.

A task's line is one write to a file opened with O_APPEND: whole or not there at all, also when the
process is killed right after it.
"""

from __future__ import annotations

import os
import re
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.support.history import Began, Ended, Outcome, Replaced, Told

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LINE = re.compile(r"^ts=(\S+) level=\w+ logger=\S+ event=(\w+) job=(\S+)(?: attempt=(\d+))?(.*)$")
_REPLACED = re.compile(r"^ts=(\S+) .* event=server_replaced partitions=([\d,]+) ")
_CAUSE = re.compile(r" cause=(\w+)")


class Effects:
    """Writes the starts and ends of tasks, from any number of processes, into one file."""

    def __init__(self, path: Path | str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def began(self, job_id: str, attempt: int, number: int) -> None:
        """Write that an attempt began, now."""
        self._write(f"began {job_id} {attempt} {number} {os.getpid()} {_now_ms()}")

    def ended(self, job_id: str, attempt: int, outcome: Outcome) -> None:
        """Write that an attempt ended, now."""
        self._write(f"ended {job_id} {attempt} {outcome} {os.getpid()} {_now_ms()}")

    def _write(self, line: str) -> None:
        os.write(self._fd, f"{line}\n".encode())


class Written(NamedTuple):
    """What tasks have written so far."""

    began: list[Began]
    ended: list[Ended]


def read_effects(path: Path) -> Written:
    """Read a file of `Effects`; one that nobody has written to yet is empty."""
    written = Written([], [])
    for line in path.read_text().splitlines() if path.exists() else ():
        word, job_id, attempt, what, pid, at_ms = line.split(" ")
        if word == "began":
            written.began.append(Began(job_id, int(attempt), int(what), int(pid), int(at_ms)))
        else:
            written.ended.append(Ended(job_id, int(attempt), _outcome(what), int(pid), int(at_ms)))
    return written


def read_log(lines: Iterable[str]) -> Iterator[Told]:
    """Find the lines of redjob's services that are about an attempt of a job."""
    for line in lines:
        found = _LINE.match(line)
        if found is None:
            continue
        stamp, event, job_id, attempt, rest = found.groups()
        cause = _CAUSE.search(rest)
        yield Told(event, job_id, int(attempt or 0), cause[1] if cause else "", _ms(stamp))


def read_replaced(lines: Iterable[str]) -> Iterator[Replaced]:
    """Find the lines of redjob's schedulers about servers that were restarted or replaced."""
    for line in lines:
        found = _REPLACED.match(line)
        if found is not None:
            for number in found[2].split(","):
                yield Replaced(int(number), _ms(found[1]))


def _ms(stamp: str) -> int:
    return round(datetime.fromisoformat(stamp).timestamp() * 1000)


def _outcome(word: str) -> Outcome:
    match word:
        case "returned" | "raised" | "interrupted":
            return word
        case _:
            raise ValueError(word)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
