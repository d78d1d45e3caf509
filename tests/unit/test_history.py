"""The checker of histories must find each kind of wrong in a history that is right but for that."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from redjob.codec import JournalEntry, Tombstone
from redjob.model import JobState, Past
from tests.support.history import (
    Asked,
    Began,
    Cancel,
    Ended,
    History,
    PartitionDump,
    Replaced,
    StreamState,
    Told,
    check,
    summary,
)
from tests.support.history_files import Effects, read_effects, read_log, read_replaced
from tests.support.history_rules import RULES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.history import Kind

LEASE_MS = 2000
T0 = 1_000_000
OK, RETRIED, LOST, CANCELLED, DEAD, KILLER = "ok", "retried", "lost", "cancelled", "dead", "killer"


def grave(state: JobState, attempt: int) -> Tombstone:
    return Tombstone(state, 1, T0 + 9000, attempt, "tag")


def began(job: str, attempt: int, at_ms: int, number: int = 0) -> Began:
    return Began(job, attempt, number or NUMBERS[job], 100 + attempt, T0 + at_ms)


def ended(job: str, attempt: int, outcome: str, at_ms: int) -> Ended:
    assert outcome in {"returned", "raised", "interrupted"}
    return Ended(job, attempt, outcome, 100 + attempt, T0 + at_ms)  # type: ignore[arg-type] # as asserted


def expired(job: str, attempt: int, at_ms: int) -> Told:
    return Told("extra_start", job, attempt, "lease_expired", T0 + at_ms)


NUMBERS = {job: n for n, job in enumerate((OK, RETRIED, LOST, CANCELLED, DEAD, KILLER), start=1)}


def journal(*rows: tuple[int, str, str, str, int]) -> list[JournalEntry]:
    """Entries from (at_ms, op, job, place, attempt)."""
    entries: list[JournalEntry] = []
    for seq, (at_ms, op, job, place, attempt) in enumerate(rows, start=1):
        block = f"{job} 2026-01-01 {place} {attempt}".encode()
        prev = f"t{seq - 1}" if seq > 1 else ""
        entries.append(JournalEntry(seq, op, 1, f"t{seq}", prev, T0 + at_ms, block, ""))
    return entries


JOURNAL = (
    (0, "enqueue", OK, "S", 0),
    (1000, "fire", OK, "D", 0),
    (1001, "take", OK, "T", 1),
    (1010, "finish", OK, "C", 1),
    (1100, "enqueue", LOST, "D", 0),
    (1101, "take", LOST, "T", 1),
    (3200, "reclaim", LOST, "S", 1),
    (4000, "fire", LOST, "D", 0),
    (4001, "take", LOST, "T", 2),
    (4010, "finish", LOST, "C", 2),
)


def good() -> History:
    """Six jobs, each with another life, and nothing wrong with any."""
    dump = PartitionDump(
        index=0,
        streams=[StreamState("q", 0, 0, 0)],
        tombstones={
            OK: grave(JobState.COMPLETED, 1),
            RETRIED: grave(JobState.COMPLETED, 2),
            LOST: grave(JobState.COMPLETED, 2),
            CANCELLED: grave(JobState.CANCELLED, 0),
        },
        dead=frozenset({DEAD, KILLER}),
        pasts={
            DEAD: Past(failures=2, dead="failure"),
            KILLER: Past(crashes=2, dead="crash"),
        },
        records=frozenset({DEAD, KILLER}),
    )
    return History(
        lease_ms=LEASE_MS,
        asked=[
            Asked(number=1, id=OK, run_at_ms=T0 + 1000),
            Asked(number=1, id=OK, run_at_ms=T0 + 1000),  # its key was used twice
            Asked(number=2, id=RETRIED, retry_delay_ms=100),
            Asked(number=3, id=LOST, answer="unknown"),
            Asked(number=4, id=CANCELLED, run_at_ms=T0 + 5000),
            Asked(number=5, id=DEAD, max_attempts=2),
            Asked(number=6, id=KILLER, max_crashes=2),
            Asked(number=7, id=None, answer="unknown"),
            Asked(number=8, id="never", answer="refused"),
        ],
        cancels=[Cancel(CANCELLED, "cancelled", T0 + 100)],
        began=[
            began(OK, 1, 1000),
            began(RETRIED, 1, 10),
            began(RETRIED, 2, 120),
            began(LOST, 1, 1102),
            began(LOST, 2, 4002),
            began(DEAD, 1, 10),
            began(DEAD, 2, 20),
            began(KILLER, 1, 10),
            began(KILLER, 2, 4000),
        ],
        ended=[
            ended(OK, 1, "returned", 1005),
            ended(RETRIED, 1, "raised", 20),
            ended(RETRIED, 2, "returned", 130),
            ended(LOST, 2, "returned", 4008),
            ended(DEAD, 1, "raised", 15),
            ended(DEAD, 2, "raised", 25),
        ],
        told=[
            expired(LOST, 1, 3200),
            expired(KILLER, 1, 2300),
            Told("dead", KILLER, 2, "crash", T0 + 6100),
        ],
        dumps=[dump],
    )


def with_journal(*rows: tuple[int, str, str, str, int]) -> History:
    """The good history of two of the jobs with a journal of a partition that has only them."""
    history = good()
    keep = {OK, LOST}
    dump = replace(
        history.dumps[0],
        tombstones={job: history.dumps[0].tombstones[job] for job in keep},
        dead=frozenset(),
        records=frozenset(),
        pasts={},
        journal=journal(*rows),
    )
    return replace(
        history,
        asked=[asked for asked in history.asked if asked.id in keep],
        cancels=[],
        began=[start for start in history.began if start.job in keep],
        ended=[end for end in history.ended if end.job in keep],
        told=[line for line in history.told if line.job in keep],
        dumps=[dump],
    )


def found(history: History) -> set[tuple[str, str]]:
    return {(violation.kind, violation.job) for violation in check(history, RULES)}


def test_a_history_in_which_all_is_well_has_no_violation() -> None:
    assert summary(check(good(), RULES)) == "no violation"
    assert summary(check(with_journal(*JOURNAL), RULES)) == "no violation"


def without_grave(history: History) -> History:
    kept = {job: g for job, g in history.dumps[0].tombstones.items() if job != OK}
    return on_dump(history, tombstones=kept)


def on_dump(history: History, **changed: object) -> History:
    return replace(history, dumps=[replace(history.dumps[0], **changed)])  # type: ignore[arg-type] # a test's


def on_grave(history: History, job: str, state: JobState, attempt: int) -> History:
    graves = {**history.dumps[0].tombstones, job: grave(state, attempt)}
    return on_dump(history, tombstones=graves)


def plus(history: History, **more: list[object]) -> History:
    changed = {name: [*getattr(history, name), *items] for name, items in more.items()}
    return replace(history, **changed)  # type: ignore[arg-type] # a test's


def without(history: History, name: str, *gone: object) -> History:
    kept = [item for item in getattr(history, name) if item not in gone]
    return replace(history, **{name: kept})  # type: ignore[arg-type] # a test's


CASES: dict[str, tuple[Kind, str, Callable[[History], History]]] = {
    "an accepted job is in no place": ("lost", OK, without_grave),
    "a job whose answer is unknown ran and is in no place": (
        "lost",
        LOST,
        lambda h: on_dump(
            h, tombstones={j: g for j, g in h.dumps[0].tombstones.items() if j != LOST}
        ),
    ),
    "a job is completed and dead": (
        "two_ends",
        OK,
        lambda h: on_dump(h, dead=frozenset({OK, DEAD, KILLER})),
    ),
    "a completed job still waits": (
        "two_ends",
        OK,
        lambda h: on_dump(h, waiting={OK: ["due:q"]}),
    ),
    "a job ran that nobody asked for": (
        "not_asked",
        "stranger",
        lambda h: plus(h, began=[Began("stranger", 1, 99, 1, T0)]),
    ),
    "a refused job ran": (
        "refused_there",
        "never",
        lambda h: plus(h, began=[Began("never", 1, 8, 1, T0)]),
    ),
    "one wish became two jobs": (
        "doubled",
        "again",
        lambda h: plus(h, asked=[Asked(number=1, id="again")]),
    ),
    "one wish without a known id became two jobs": (
        "doubled",
        "a",
        lambda h: plus(h, began=[Began("a", 1, 7, 1, T0), Began("b", 1, 7, 1, T0)]),
    ),
    "a job is completed and its attempt raised": (
        "unreturned",
        RETRIED,
        lambda h: on_grave(h, RETRIED, JobState.COMPLETED, 1),
    ),
    "a job is completed by an attempt that never began": (
        "unreturned",
        OK,
        lambda h: on_grave(h, OK, JobState.COMPLETED, 2),
    ),
    "a job began before its time": (
        "early",
        OK,
        lambda h: plus(without(h, "began", began(OK, 1, 1000)), began=[began(OK, 1, 999)]),
    ),
    "a retry began before its time": (
        "early",
        RETRIED,
        lambda h: plus(without(h, "began", began(RETRIED, 2, 120)), began=[began(RETRIED, 2, 119)]),
    ),
    "a second start without a line in the log": (
        "unexplained_start",
        LOST,
        lambda h: without(h, "told", expired(LOST, 1, 3200)),
    ),
    "a second start after a success": (
        "unexplained_start",
        OK,
        lambda h: plus(h, began=[began(OK, 2, 2000)]),
    ),
    "one attempt began twice": (
        "attempt_twice",
        OK,
        lambda h: plus(h, began=[began(OK, 1, 1001)]),
    ),
    "an attempt was ended before a lease can be over": (
        "live_lease",
        LOST,
        lambda h: plus(h, told=[expired(LOST, 1, 2000)]),
    ),
    "two attempts ran at once": (
        "live_lease",
        RETRIED,
        lambda h: plus(
            without(h, "ended", ended(RETRIED, 1, "raised", 20)),
            ended=[ended(RETRIED, 1, "raised", 125)],
        ),
    ),
    "a start after the reply CANCELLED": (
        "started_after_cancel",
        CANCELLED,
        lambda h: plus(h, began=[began(CANCELLED, 1, 5000)]),
    ),
    "two starts after the reply CANCEL_REQUESTED": (
        "started_after_cancel",
        LOST,
        lambda h: plus(h, cancels=[Cancel(LOST, "requested", T0 + 1000)]),
    ),
    "a cancelled job is completed": (
        "not_cancelled",
        OK,
        lambda h: plus(h, cancels=[Cancel(OK, "cancelled", T0 + 1100)]),
    ),
    "dead before the attempts are used up": (
        "dead_too_soon",
        DEAD,
        lambda h: without(h, "ended", ended(DEAD, 2, "raised", 25)),
    ),
    "dead by a count that is too low": (
        "dead_too_soon",
        DEAD,
        lambda h: on_dump(h, pasts={**h.dumps[0].pasts, DEAD: Past(failures=1, dead="failure")}),
    ),
    "dead before the crashes are used up": (
        "dead_too_soon",
        KILLER,
        lambda h: without(h, "told", expired(KILLER, 1, 2300)),
    ),
    "dead without a reason": (
        "dead_too_soon",
        DEAD,
        lambda h: on_dump(h, pasts={KILLER: h.dumps[0].pasts[KILLER]}),
    ),
    "a job still waits": (
        "not_drained",
        OK,
        lambda h: on_dump(h, waiting={OK: ["dispatched"]}),
    ),
    "a lease without a run": (
        "not_drained",
        "x",
        lambda h: on_dump(h, leases=frozenset({"x"})),
    ),
    "a run without a lease": (
        "not_drained",
        "x",
        lambda h: on_dump(h, runs=frozenset({"x"})),
    ),
    "a record in no place": (
        "not_drained",
        "x",
        lambda h: on_dump(h, records=frozenset({"x"})),
    ),
    "an entry in a stream": (
        "not_drained",
        "",
        lambda h: on_dump(h, streams=[StreamState("q", 1, 0, 1)]),
    ),
    "a pending entry": (
        "not_drained",
        "",
        lambda h: on_dump(h, streams=[StreamState("q", 0, 1, 0)]),
    ),
    "a depth that is not 0": (
        "not_drained",
        "",
        lambda h: on_dump(h, streams=[StreamState("q", 0, 0, -1)]),
    ),
    "a cancel that nobody took away": (
        "not_drained",
        "",
        lambda h: on_dump(h, leftovers=["cancels of x"]),
    ),
}


@pytest.mark.parametrize(("kind", "job", "spoil"), CASES.values(), ids=CASES)
def test_a_wrong_is_found(kind: Kind, job: str, spoil: Callable[[History], History]) -> None:
    assert (kind, job) in found(spoil(good()))


JOURNAL_CASES: dict[str, tuple[Kind, str, tuple[tuple[int, str, str, str, int], ...]]] = {
    "a job ends twice": ("two_ends", OK, (*JOURNAL, (5000, "finish", OK, "C", 1))),
    "a job has lost its record": ("lost", OK, (*JOURNAL, (5000, "lose", OK, "L", 0))),
    "a job goes on after its end": ("journal", OK, (*JOURNAL, (5000, "fire", OK, "D", 0))),
    "an attempt is taken twice": (
        "attempt_twice",
        LOST,
        (*JOURNAL[:6], (3200, "reclaim", LOST, "S", 1), (4000, "fire", LOST, "D", 0),
         (4001, "take", LOST, "T", 1), *JOURNAL[8:]),
    ),
    "a job is taken while it runs": (
        "live_lease",
        LOST,
        (*JOURNAL[:6], (1200, "take", LOST, "T", 2), JOURNAL[9]),
    ),
    "an attempt is reclaimed while its lease lives": (
        "live_lease",
        LOST,
        (*JOURNAL[:6], (3100, "reclaim", LOST, "S", 1), *JOURNAL[7:]),
    ),
    "an attempt ends that has lost its lease to a newer one": (
        "stale_finish",
        LOST,
        (*JOURNAL[:9], (4005, "finish", LOST, "C", 1)),
    ),
    "a task began what was never taken": ("journal", OK, JOURNAL[4:]),
    "a job is somewhere else than where it was left": (
        "journal",
        OK,
        (*JOURNAL[:3], (1010, "finish", OK, "K", 1), *JOURNAL[4:]),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "job", "rows"), JOURNAL_CASES.values(), ids=JOURNAL_CASES)
def test_a_wrong_is_found_in_the_journal(
    kind: Kind, job: str, rows: tuple[tuple[int, str, str, str, int], ...]
) -> None:
    assert (kind, job) in found(with_journal(*rows))


def test_a_gap_and_a_broken_chain_are_found_in_the_journal() -> None:
    history = with_journal(*JOURNAL)
    whole = list(history.dumps[0].journal or ())
    assert ("journal", "") in found(on_dump(history, journal=[*whole[:2], *whole[3:]]))
    forked = [*whole[:2], whole[2]._replace(prev="other"), *whole[3:]]
    assert ("journal", "") in found(on_dump(history, journal=forked))


def test_a_late_success_that_redjob_accepts_is_no_violation() -> None:
    rows = (*JOURNAL[:7], (3300, "finish", LOST, "C", 1))
    history = with_journal(*rows)
    history = on_grave(history, LOST, JobState.COMPLETED, 1)
    history = without(history, "began", began(LOST, 2, 4002))
    history = plus(history, ended=[ended(LOST, 1, "returned", 3290)])
    assert summary(check(history, RULES)) == "no violation"


def test_a_paused_worker_may_begin_what_it_has_lost_meanwhile_and_no_other() -> None:
    history = without(good(), "began", began(LOST, 1, 1102))
    history = plus(history, began=[began(LOST, 1, 3500)], ended=[ended(LOST, 1, "returned", 4005)])
    assert ("live_lease", LOST) in found(history)
    history = replace(history, stalled=frozenset({101}))
    assert summary(check(history, RULES)) == "no violation"


def test_what_a_server_that_went_back_has_lost_is_no_violation_where_the_log_names_it() -> None:
    history = without_grave(good())
    assert ("lost", OK) in found(history)
    named = plus(history, told=[Told("job_lost_possible", OK, 0, "rollback", T0)])
    assert summary(check(named, RULES)) == "no violation"
    assert named.gone == {OK}
    assert not good().gone

    history = plus(good(), began=[began(OK, 1, 1500)])
    assert ("attempt_twice", OK) in found(history)
    named = plus(history, told=[Told("extra_start_possible", OK, 1, "rollback", T0)])
    assert summary(check(named, RULES)) == "no violation"

    history = plus(good(), cancels=[Cancel(OK, "cancelled", T0)])
    assert ("started_after_cancel", OK) in found(history)
    named = plus(history, told=[Told("change_lost_possible", OK, 0, "rollback", T0)])
    assert summary(check(named, RULES)) == "no violation"


def test_what_a_replaced_server_took_with_it_unread_is_no_violation_for_a_while() -> None:
    job = "01a22bac-573f-7e8a-ac35-e3549f5020cd"  # in the third of four partitions
    empty = [PartitionDump(index=index) for index in range(4)]
    asked = [Asked(number=1, id=job, replied_ms=T0)]
    history = History(lease_ms=LEASE_MS, asked=asked, dumps=empty)
    assert found(history) == {("lost", job)}
    after = T0 + 1000
    assert not found(replace(history, replaced=[Replaced(2, after)]))
    for other in (Replaced(1, after), Replaced(2, T0 - 1), Replaced(2, T0 + 60_000)):
        assert found(replace(history, replaced=[other])) == {("lost", job)}


def test_the_same_wrong_is_told_once_and_the_summary_counts_kinds() -> None:
    history = plus(without_grave(good()), asked=[Asked(number=1, id=OK)])
    violations = check(history, RULES)
    assert len(violations) == 1
    assert summary(violations).splitlines()[0] == "1 x lost"


def test_tasks_write_whole_lines_that_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "effects"
    assert read_effects(path) == ([], [])
    first, second = Effects(path), Effects(path)
    first.began("a", 1, 17)
    second.began("b", 2, 18)
    first.ended("a", 1, "returned")
    starts, ends = read_effects(path)
    assert [start[:3] for start in starts] == [("a", 1, 17), ("b", 2, 18)]
    assert [end[:3] for end in ends] == [("a", 1, "returned")]


def test_the_log_of_a_service_is_read() -> None:
    lines = [
        "ts=2026-11-30T00:00:01.250Z level=warning logger=s event=extra_start job=j attempt=2 cause=x w=w",
        "ts=2026-11-30T00:00:02.000Z level=info logger=redjob.worker event=cancelled job=j attempt=3",
        "ts=2026-11-30T00:00:03.000Z level=info logger=redjob.worker event=worker_started worker=w",
        "ts=2026-11-30T00:00:04.000Z level=error logger=s event=job_lost_possible job=j cause=rollback",
        "Traceback (most recent call last):",
    ]
    assert list(read_log(lines)) == [
        Told("extra_start", "j", 2, "x", 1_795_996_801_250),
        Told("cancelled", "j", 3, "", 1_795_996_802_000),
        Told("job_lost_possible", "j", 0, "rollback", 1_795_996_804_000),
    ]


def test_the_word_of_a_replaced_server_is_read_for_each_partition() -> None:
    line = (
        "ts=2026-11-30T00:00:01.250Z level=warning logger=redjob.scheduler "
        "event=server_replaced partitions=3,14 newest_writes=unsure"
    )
    at_ms = 1_795_996_801_250
    assert list(read_replaced([line, "else"])) == [Replaced(3, at_ms), Replaced(14, at_ms)]
