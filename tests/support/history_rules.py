"""What must hold of every run, whatever was killed in it: one rule a function; under history.

These rules believe the client and the tasks. What redjob says of itself is used in two places: its
log line is the only excuse for an extra start, and its places must agree with what the tasks did.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.support.history import Asked, Began, History, Rule, Violation
from tests.support.history_journal import JOURNAL_RULES

# A start is written down by the task, the reclaim by a log line: both are later than what they tell.
_LOG_SLACK_MS = 500


def ends_once(history: History) -> Iterator[Violation]:
    """Every accepted job is in exactly one terminal place; one whose answer is unknown in at most one."""
    asked = _answers(history)
    for job_id in sorted(asked.keys() | history.known):
        answers = asked.get(job_id, set())
        ends, waits = history.ends.get(job_id, []), history.waiting.get(job_id, [])
        if len(ends) > 1:
            yield Violation("two_ends", job_id, f"it is {' and '.join(ends)}")
        if ends and waits:
            yield Violation("two_ends", job_id, f"it is {ends[0]} and in {', '.join(waits)}")
        if history.may_be_gone(job_id):
            continue  # said to be lost, perhaps: `History.gone` counts those that are
        if not ends and not waits and ("accepted" in answers or job_id in history.begun_of):
            starts = len(history.begun_of.get(job_id, ()))
            yield Violation("lost", job_id, f"accepted, {starts} starts, and now in no place")


def nothing_else(history: History) -> Iterator[Violation]:
    """Nothing runs that was not asked for, or was refused; no wish becomes two jobs."""
    answers = _answers(history)
    numbers: defaultdict[int, set[str]] = defaultdict(set)
    for asked in history.asked:
        if asked.id is not None:
            numbers[asked.number].add(asked.id)
    for start in history.began:
        numbers[start.number].add(start.job)
    unnamed = {asked.number for asked in history.asked if asked.id is None}
    own = {job_id for number in unnamed for job_id in numbers[number]}
    for job_id in sorted(history.known):
        if job_id not in answers and job_id not in own:
            yield Violation("not_asked", job_id, "nobody asked for it")
        elif answers.get(job_id) == {"refused"}:
            yield Violation("refused_there", job_id, "its enqueue was refused")
    for number, ids in numbers.items():
        if len(ids) > 1:
            yield Violation("doubled", min(ids), f"wish {number} became {', '.join(sorted(ids))}")


def completed_means_returned(history: History) -> Iterator[Violation]:
    """A completed job has an attempt that began and returned, and it is the one that is named."""
    for dump in history.dumps:
        for job_id, grave in dump.tombstones.items():
            if grave.state.value != "COMPLETED":
                continue
            end = history.ended_of.get((job_id, grave.attempt))
            begun = any(
                start.attempt == grave.attempt for start in history.begun_of.get(job_id, ())
            )
            if end is None or end.outcome != "returned" or not begun:
                word = "never began" if not begun else end.outcome if end else "has no end"
                yield Violation(
                    "unreturned", job_id, f"COMPLETED by attempt {grave.attempt}, which {word}"
                )


def never_early(history: History) -> Iterator[Violation]:
    """No start before the due time: the one asked for, or that of a retry."""
    for job_id, asked in _first_asked(history).items():
        starts = history.begun_of.get(job_id, [])
        for start in starts:
            if start.at_ms < asked.run_at_ms:
                early_ms = asked.run_at_ms - start.at_ms
                yield Violation(
                    "early", job_id, f"attempt {start.attempt} began {early_ms} ms early"
                )
        for before, start in pairwise(starts):
            end = history.ended_of.get((job_id, before.attempt))
            name = (job_id, before.attempt)
            explained = name in history.extra_starts or history.may_start_again(before)
            if end is None or end.outcome != "raised" or explained:
                continue
            waited_ms = start.at_ms - end.at_ms
            if waited_ms < asked.retry_delay_ms:
                yield Violation(
                    "early", job_id, f"attempt {start.attempt} began {waited_ms} ms after a failure"
                )


def extra_starts_explained(history: History) -> Iterator[Violation]:
    """An attempt is started once, and each start but the last failed or has its line in the log."""
    for job_id, starts in history.begun_of.items():
        for attempt, count in Counter(start.attempt for start in starts).items():
            same = [start for start in starts if start.attempt == attempt]
            if count > 1 and not any(map(history.may_start_again, same[:-1])):
                yield Violation("attempt_twice", job_id, f"attempt {attempt} began {count} times")
        last = max(start.attempt for start in starts)
        for start in starts:
            name = (job_id, start.attempt)
            if start.attempt == last or name in history.extra_starts:
                continue
            if history.may_start_again(start):
                continue
            end = history.ended_of.get((job_id, start.attempt))
            if end is None or end.outcome != "raised":
                word = end.outcome if end else "has no end"
                yield Violation(
                    "unexplained_start",
                    job_id,
                    f"started again after attempt {start.attempt}, which {word}: no line in the log",
                )


def one_live_lease(history: History) -> Iterator[Violation]:
    """Nobody takes a job from an attempt whose lease lives, as far as the log and the tasks tell."""
    for job_id, starts in history.begun_of.items():
        for start in starts:
            line = history.extra_starts.get((job_id, start.attempt))
            if line is None or line.cause != "lease_expired" or start.pid in history.stalled:
                continue
            held_ms = line.at_ms - start.at_ms
            if held_ms + _LOG_SLACK_MS < history.lease_ms:
                yield Violation(
                    "live_lease",
                    job_id,
                    f"attempt {start.attempt} was ended {held_ms} ms after it began",
                )
        yield from _overlaps(history, job_id, starts)


def cancelled_stays_so(history: History) -> Iterator[Violation]:
    """After the reply CANCELLED nothing starts and the job is CANCELLED; after REQUESTED nothing new."""
    for cancel in history.cancels:
        late = [
            start
            for start in history.begun_of.get(cancel.job, ())
            if start.at_ms > cancel.replied_ms and not history.was_lost_before(start)
        ]
        if history.may_run_on(cancel):
            continue
        # one that was taken before may write down its start after the reply
        if (cancel.reply == "cancelled" and late) or (
            cancel.reply == "requested" and len(late) > 1
        ):
            after_ms = late[-1].at_ms - cancel.replied_ms
            yield Violation(
                "started_after_cancel",
                cancel.job,
                f"attempt {late[-1].attempt} began {after_ms} ms after the reply {cancel.reply}",
            )
        ends = history.ends.get(cancel.job, [])
        if cancel.reply == "cancelled" and ends and ends != ["CANCELLED"]:
            yield Violation("not_cancelled", cancel.job, f"CANCELLED was replied, it is {ends[0]}")


def dead_at_the_limit(history: History) -> Iterator[Violation]:
    """A dead job has used up its attempts or its crashes, by the tasks' own account and redjob's."""
    limits = _first_asked(history)
    for dump in history.dumps:
        for job_id in sorted(dump.dead & limits.keys()):
            asked, past = limits[job_id], dump.pasts.get(job_id)
            if past is None or past.dead == "rejected":
                yield Violation("dead_too_soon", job_id, "dead, and nothing says why")
            elif past.dead == "failure":
                raised = _raised(history, job_id)
                if raised < asked.max_attempts or past.failures < asked.max_attempts:
                    told = f"{raised} failures ({past.failures} counted) of {asked.max_attempts}"
                    yield Violation("dead_too_soon", job_id, f"dead after {told}")
            else:
                lost = _crashed(history, job_id)
                if lost < asked.max_crashes or past.crashes < asked.max_crashes:
                    told = f"{lost} crashes ({past.crashes} counted) of {asked.max_crashes}"
                    yield Violation("dead_too_soon", job_id, f"dead after {told}")


def drained(history: History) -> Iterator[Violation]:
    """At the end no place holds anything that has not ended, and all counters say so."""
    for job_id, places in history.waiting.items():
        yield Violation("not_drained", job_id, f"still in {', '.join(places)}")
    for dump in history.dumps:
        for job_id in dump.leases ^ dump.runs:
            has, lacks = ("lease", "run") if job_id in dump.leases else ("run", "lease")
            yield Violation("not_drained", job_id, f"it has a {has} but no {lacks}")
        for job_id in sorted(dump.records - dump.dead - history.waiting.keys()):
            yield Violation("not_drained", job_id, "its record is there and it is in no place")
        for stream in dump.streams:
            if stream.length or stream.pending or stream.depth:
                yield Violation("not_drained", "", f"p{dump.index} {stream}")
        for what in dump.leftovers:
            yield Violation("not_drained", "", f"p{dump.index} still holds {what}")


RULES: tuple[Rule, ...] = (
    ends_once,
    nothing_else,
    completed_means_returned,
    never_early,
    extra_starts_explained,
    one_live_lease,
    cancelled_stays_so,
    dead_at_the_limit,
    drained,
    *JOURNAL_RULES,
)


def _answers(history: History) -> dict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for asked in history.asked:
        if asked.id is not None:
            found[asked.id].add(asked.answer)
    return found


def _first_asked(history: History) -> dict[str, Asked]:
    return {asked.id: asked for asked in reversed(history.asked) if asked.id is not None}


def _raised(history: History, job_id: str) -> int:
    return sum(end.job == job_id and end.outcome == "raised" for end in history.ended)


def _crashed(history: History, job_id: str) -> int:
    """Attempts that the log says were lost with their worker, the last one included."""
    found = {
        line.attempt
        for line in history.told
        if line.job == job_id
        and (
            (line.event, line.cause)
            in {("extra_start", "lease_expired"), ("starts_again", "crashed")}
            or line.event == "dead"
        )
    }
    return len(found)


def _overlaps(history: History, job_id: str, starts: list[Began]) -> Iterator[Violation]:
    """Attempts that ran at the same time although no lease can have ended between them."""
    for before, start in pairwise(starts):
        end = history.ended_of.get((job_id, before.attempt))
        if end is None or end.at_ms <= start.at_ms or before.pid in history.stalled:
            continue
        if history.may_start_again(before):
            continue
        line = history.extra_starts.get((job_id, before.attempt))
        if line is not None and line.cause == "handed_back":
            continue  # its worker gave the lease up itself
        apart_ms = start.at_ms - before.at_ms
        if line is None or apart_ms + _LOG_SLACK_MS < history.lease_ms:
            yield Violation(
                "live_lease",
                job_id,
                f"attempt {start.attempt} began while attempt {before.attempt} ran, {apart_ms} ms after it",
            )
