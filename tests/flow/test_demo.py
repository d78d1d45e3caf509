"""The demo as `make demo` runs it, and that its account can fail."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from redjob import ErrorInfo, JobInfo, JobState
from redjob.demo.checks import checks
from redjob.demo.outcome import Outcome
from redjob.demo.report import table, verdicts
from redjob.demo.scenario import IMMEDIATE, SPREAD, Asked, Kind
from redjob.demo.trace import Start

if TYPE_CHECKING:
    from collections.abc import Callable

DUE_MS = 1_790_000_000_000
KILLED_PID = 77


@pytest.mark.slow
@pytest.mark.solo
def test_the_demo_ends_well_in_less_than_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    # What the user has set for a namespace of their own must not reach into the demo's.
    monkeypatch.setenv("REDJOB_REDIS_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("REDJOB_NAMESPACE", "theirs")
    monkeypatch.setenv("REDJOB_QUEUES", "theirs")
    ran = subprocess.run(
        [sys.executable, "-m", "redjob.demo"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    assert "all is as it must be" in ran.stdout
    assert "FAIL " not in ran.stdout


def good_outcome() -> Outcome:
    """The outcome that the demo must have, made by hand."""
    asked = Asked(key_created=[True, False], killed_pid=KILLED_PID)
    infos: dict[str, JobInfo] = {}
    starts: dict[str, list[Start]] = {}

    def add(kind: Kind, state: JobState, pids: list[int], count: int = 1) -> None:
        for number in range(count):
            job_id = f"{kind.name} {number}"
            kind.due_ms[job_id] = DUE_MS
            error = ErrorInfo(type="ValueError", message="", at=0)
            infos[job_id] = JobInfo(id=job_id, state=state, attempt=len(pids), error=error)
            begun = [Start(job_id, n, DUE_MS + 3, pid) for n, pid in enumerate(pids, 1)]
            if begun:
                starts[job_id] = begun

    add(asked.immediate, JobState.COMPLETED, [1], IMMEDIATE)
    add(asked.spread, JobState.COMPLETED, [1], SPREAD)
    add(asked.flaky, JobState.COMPLETED, [1, 1, 1])
    add(asked.hopeless, JobState.FAILED, [1, 1, 1])
    add(asked.cancelled, JobState.CANCELLED, [])
    add(asked.keyed, JobState.COMPLETED, [1])
    add(asked.killed, JobState.COMPLETED, [KILLED_PID, 78])
    explained = [("worker killed 0", 1, "lease_expired")]
    left = Counter({"scheduled": 0, "waiting": 0, "dead": 1})
    return Outcome(asked, infos, starts, explained, left)


def failed(outcome: Outcome) -> list[str]:
    """The names of the checks that do not hold."""
    return [check.name for check in checks(outcome) if check.found]


def test_the_outcome_that_must_be_passes_and_is_told() -> None:
    outcome = good_outcome()
    assert failed(outcome) == []
    lines = table(outcome)
    assert len(lines) == 8
    assert lines[1].split() == ["at", "once", "200", "200", "COMPLETED", "3", "3", "3"]
    assert all(line.startswith("  ok") for line in verdicts(checks(outcome)))


def another_start(outcome: Outcome, job_id: str, attempt: int, at_ms: int = DUE_MS + 9) -> None:
    outcome.starts.setdefault(job_id, []).append(Start(job_id, attempt, at_ms, 5))


def ended(outcome: Outcome, job_id: str, **changed: Any) -> None:
    outcome.infos[job_id] = msgspec.structs.replace(outcome.infos[job_id], **changed)


DAMAGES: list[tuple[Callable[[Outcome], object], str]] = [
    (lambda o: another_start(o, "at once 7", 2), "at once: all 200"),
    (lambda o: another_start(o, "at once 7", 1), "at once: all 200"),
    (lambda o: o.starts.pop("at a time 7"), "at a time: all 50"),
    (lambda o: ended(o, "at a time 7", state=JobState.RUNNING), "at a time: all 50"),
    (lambda o: o.asked.immediate.due_ms.pop("at once 7"), "at once: all 200"),
    (
        lambda o: o.starts.update({"at a time 7": [Start("at a time 7", 1, DUE_MS - 1, 1)]}),
        "at a time: none started early",
    ),
    (
        lambda o: o.starts.update({"at a time 7": [Start("at a time 7", 1, DUE_MS + 2000, 1)]}),
        "at a time: 99 of 100",
    ),
    (lambda o: ended(o, "fails twice 0", attempt=2), "fails twice completed at attempt 3"),
    (lambda o: ended(o, "fails always 0", error=None), "is dead after 3 attempts"),
    (lambda o: ended(o, "fails always 0", state=JobState.COMPLETED), "is dead after 3"),
    (lambda o: another_start(o, "cancelled 0", 1), "cancelled job never started"),
    (lambda o: o.asked.key_created.reverse(), "named one job"),
    (lambda o: another_start(o, "one key, twice 0", 1), "of that key ran once"),
    (lambda o: o.starts["worker killed 0"].pop(), "run again by another process"),
    (lambda o: setattr(o.asked, "killed_pid", 78), "run again by another process"),
    (lambda o: o.explained.clear(), "is explained by redjob's log"),
    (lambda o: o.explained.append(("at once 7", 1, "entry_lost")), "is explained"),
    (lambda o: another_start(o, "a stranger", 1), "nothing else was started"),
    (lambda o: o.left.update({"scheduled": 1}), "Redis holds nothing more"),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGES)
def test_each_deviation_fails_the_check_that_names_it(
    damage: Callable[[Outcome], object], words: str
) -> None:
    outcome = good_outcome()
    damage(outcome)
    assert any(words in name for name in failed(outcome)), failed(outcome)
    assert any(line.startswith("  FAIL") for line in verdicts(checks(outcome)))
