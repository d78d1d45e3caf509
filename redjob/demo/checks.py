"""What must be so at the end of the demo, each by name; functions of the outcome."""

from __future__ import annotations

from typing import NamedTuple

from redjob import JobInfo, JobState
from redjob.demo.app import FLAKY_FAILS, HOPELESS_TRIES
from redjob.demo.outcome import Outcome
from redjob.demo.scenario import IMMEDIATE, SPREAD, Kind
from redjob.demo.trace import Start

_ON_TIME_MS = 1000


class Check(NamedTuple):
    """One claim; `found` is what was seen instead, "" when it holds."""

    name: str
    found: str = ""


def checks(outcome: Outcome) -> list[Check]:
    """Check everything that the demo claims."""
    asked = outcome.asked
    return [
        *_plain(outcome, asked.immediate, IMMEDIATE),
        *_plain(outcome, asked.spread, SPREAD),
        _one(
            outcome,
            asked.flaky,
            f"the job that fails twice completed at attempt {FLAKY_FAILS + 1}",
            JobState.COMPLETED,
            FLAKY_FAILS + 1,
        ),
        _one(
            outcome,
            asked.hopeless,
            f"the job that fails always is dead after {HOPELESS_TRIES} attempts, and says why",
            JobState.FAILED,
            HOPELESS_TRIES,
            error="ValueError",
        ),
        _one(outcome, asked.cancelled, "the cancelled job never started", JobState.CANCELLED, 0),
        _key(outcome),
        _one(outcome, asked.keyed, "the job of that key ran once", JobState.COMPLETED, 1),
        _killed(outcome),
        _explained(outcome),
        _nothing_else(outcome),
        _left(outcome),
    ]


def _plain(outcome: Outcome, kind: Kind, count: int) -> list[Check]:
    jobs = outcome.of(kind)
    bad = [_told(*job) for job in jobs if not _is(*job, JobState.COMPLETED, 1)]
    late = outcome.lateness_ms(kind)
    early = [ms for ms in late if ms < 0]
    slow = [ms for ms in late if ms > _ON_TIME_MS]
    ran = "" if len(jobs) == count and not bad else f"{len(jobs)} jobs; {'; '.join(bad[:3])}"
    return [
        Check(f"{kind.name}: all {count} jobs completed, each after one start", ran),
        Check(f"{kind.name}: none started early", f"{early[:3]} ms" if early else ""),
        Check(
            f"{kind.name}: 99 of 100 started within {_ON_TIME_MS} ms",
            f"{len(slow)} later, up to {slow[-1]} ms" if len(slow) * 100 > len(late) else "",
        ),
    ]


def _one(
    outcome: Outcome, kind: Kind, name: str, state: JobState, count: int, *, error: str = ""
) -> Check:
    (info, begun), *more = outcome.of(kind)
    right = not more and _is(info, begun, state, count)
    right = right and (not error or (info.error is not None and info.error.type == error))
    return Check(name, "" if right else _told(info, begun))


def _key(outcome: Outcome) -> Check:
    ids, created = list(outcome.asked.keyed.due_ms), outcome.asked.key_created
    right = len(ids) == 1 and created == [True, False]
    return Check("the key used twice named one job", "" if right else f"{ids}, created {created}")


def _killed(outcome: Outcome) -> Check:
    name = "the killed worker's job was run again by another process: attempt 2 completed it"
    ((info, begun),) = outcome.of(outcome.asked.killed)
    pids = [start.pid for start in begun]
    right = _is(info, begun, JobState.COMPLETED, 2) and pids[0] == outcome.asked.killed_pid
    right = right and pids[1] != pids[0]
    return Check(name, "" if right else f"{_told(info, begun)}, processes {pids}")


def _explained(outcome: Outcome) -> Check:
    (killed,) = outcome.asked.killed.due_ms
    wanted = [(killed, 1, "lease_expired")]
    found = "" if outcome.explained == wanted else str(outcome.explained)
    return Check("that second start, and no other, is explained by redjob's log", found)


def _nothing_else(outcome: Outcome) -> Check:
    strangers = outcome.starts.keys() - outcome.infos.keys()
    return Check("nothing else was started", str(sorted(strangers)) if strangers else "")


def _left(outcome: Outcome) -> Check:
    wanted = {"scheduled": 0, "waiting": 0, "dead": 1}
    name = "Redis holds nothing more but the one dead job"
    return Check(name, "" if dict(outcome.left) == wanted else str(dict(outcome.left)))


def _is(info: JobInfo, begun: list[Start], state: JobState, count: int) -> bool:
    """Whether Redis and the trace both tell this state and so many attempts, in their order."""
    attempts = [start.attempt for start in begun]
    return info.state is state and info.attempt == count and attempts == list(range(1, count + 1))


def _told(info: JobInfo, begun: list[Start]) -> str:
    return f"{info.id} is {info.state}, attempt {info.attempt}, started {len(begun)} times"
