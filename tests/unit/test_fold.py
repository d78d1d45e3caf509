"""Folding of a batch comes to the same rows as its entries one at a time, wherever batches are cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redjob.codec import JournalEntry
from redjob.journal.fold import Fold
from tests.support.lives import ID, Lives, line_of
from tests.support.pg_model import PgModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redjob.pg.writes import Run

PARTITION = 3
_choices = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 11)), max_size=60)


def fold_of(*entries: JournalEntry, careful: bool = False) -> Fold:
    fold = Fold(careful=careful)
    for entry in entries:
        assert fold.add(PARTITION, entry)
    return fold


def entry_of(op: str, *lines: str, seq: int = 7, worker: str = "w") -> JournalEntry:
    return JournalEntry(seq, op, 1, f"t{seq}", "", 1000 + seq, "\n".join(lines).encode(), worker)


def write_in_batches(entries: Sequence[JournalEntry], cuts: set[int]) -> PgModel:
    """Write entries as the writer does: a batch ends at a cut, or where an entry has to wait."""
    model, fold, careful = PgModel(), Fold(), False
    for number, entry in enumerate(entries):
        taken = fold.add(PARTITION, entry)
        if not taken or number in cuts:
            model.write(*fold.jobs(), fold.runs)
            careful = not careful  # both ways come to the same
            fold = Fold(careful=careful)
            assert taken or fold.add(PARTITION, entry)
    model.write(*fold.jobs(), fold.runs)
    return model


@given(_choices, st.sets(st.integers(0, 60)))
@settings(max_examples=400, deadline=None)
def test_batches_leave_what_single_entries_leave(
    choices: list[tuple[int, int]], cuts: set[int]
) -> None:
    lives = Lives()
    for job, choice in choices:
        lives.step(job, choice)
    plain = PgModel()
    plain.replay(PARTITION, lives.entries)
    written = write_in_batches(lives.entries, cuts)
    assert written.jobs == plain.jobs
    assert written.runs == plain.runs


def test_a_job_that_was_enqueued_and_ended_in_one_batch_costs_one_row() -> None:
    lives = Lives()
    for choice in ("enqueue", "fire", "take", "complete"):
        lives.do(0, choice)
    fold = fold_of(*lives.entries)
    assert fold.jobs() == ([], [])
    (run,) = fold.runs
    assert (run.final, run.state, run.worker, run.outcome) == (True, "C", "w1", "completed")
    assert run.started == lives.entries[2].at_ms
    assert run.doc is not None
    assert run.doc.startswith('{"home":')


def test_an_id_that_ended_and_is_enqueued_again_waits_for_the_next_batch() -> None:
    lives = Lives()
    for choice in ("enqueue", "cancel", "enqueue"):
        lives.do(0, choice)
    fold = fold_of(*lives.entries[:2])
    assert not fold.add(PARTITION, lives.entries[2])
    assert fold.jobs() == ([], [])
    assert fold.lines == 2


def test_what_only_moves_a_job_on_within_redis_changes_no_row() -> None:
    fold = fold_of(
        entry_of("fire", f"{ID} 2026-09-21 D"),
        entry_of("release", f"{ID} 2026-09-21 D"),
        entry_of("requeue", f"{ID} 2026-09-21 D"),
        entry_of("lose", f"{ID} - L 1"),
        entry_of("again"),
    )
    assert (fold.jobs(), fold.runs, fold.lines) == (([], []), [], 0)


def test_an_op_of_a_later_version_is_told() -> None:
    assert fold_of(entry_of("teleport", f"{ID} 2026-09-21 Z")).unknown == {"teleport"}


def test_a_line_without_record_is_of_a_time_before_postgres() -> None:
    fold = fold_of(entry_of("enqueue", f"{ID} 2026-09-21 S 0 1790000060000 q"))
    assert fold.jobs() == ([], [])


def test_a_job_that_runs_is_asked_to_stop_and_the_request_ends_with_the_attempt() -> None:
    lives = Lives()
    for choice in ("enqueue", "fire", "take", "ask"):
        lives.do(0, choice)
    (job,), _ = fold_of(*lives.entries).jobs()
    assert (job.place, job.cancel) == ("T", lives.entries[-1].at_ms)
    lives.do(0, "die")
    (job,), _ = fold_of(*lives.entries).jobs()
    assert (job.place, job.cancel, job.worker) == ("F", None, None)


@pytest.mark.parametrize(
    ("past", "outcome", "error"),
    [
        ('{"last":"snoozed"}', "snoozed", None),
        ('{"error":{"type":"E"},"last":"failed"}', "failed", '{"type":"E"}'),
        ("{}", "failed", None),
        ("not JSON", "failed", None),
        ('{"last":"\\u0000"}', "failed", None),
    ],
)
def test_the_past_tells_how_an_attempt_ended(past: str, outcome: str, error: str | None) -> None:
    fold = fold_of(entry_of("finish", f"{ID} 2026-09-21 S 2 1790000060000 q {past}"))
    (run,) = fold.runs
    assert (run.state, run.attempt, run.outcome, run.error) == ("S", 2, outcome, error)
    assert not run.final


def test_what_the_batch_does_not_know_of_a_run_is_left_to_the_row() -> None:
    run: Run
    (run,) = fold_of(entry_of("reclaim", f"{ID} 2026-09-21 S 2 1790 q {{}}", worker="")).runs
    assert (run.worker, run.started, run.queue, run.doc, run.outcome) == (
        None, None, None, None, "crashed",
    )  # fmt: skip


DOC = '{"home":"2026-09-21","created":1790000000000,"task":"t","queue":"q","payload":{}}'
SOUND = line_of(DOC)


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"not-an-id-but-as-long-as-one-of-those 2026-09-21 S 0 0 q {}",
        SOUND.replace(" 2026-09-21", " 2026-13-45", 1).encode(),
        SOUND.replace(" S 0 ", " S 9999999999 ").encode(),
        SOUND.replace(" q ", " " + 200 * "q" + " ").encode(),
    ],
)
def test_a_careful_fold_leaves_out_what_is_no_line_and_tells_it(damaged: bytes) -> None:
    entry = entry_of("enqueue")._replace(block=damaged + b"\n" + SOUND.encode())
    fold = fold_of(entry, careful=True)
    assert [job.id for job in fold.jobs()[0]] == [ID]
    assert [(line.partition, line.seq) for line in fold.damaged] == [(PARTITION, 7)]


def test_a_careful_fold_makes_text_of_what_is_none() -> None:
    raw = DOC.replace("{}", '{"a":"X\0"}').encode().replace(b"X", b"\xff")
    entry = entry_of("enqueue")._replace(block=SOUND.encode().replace(DOC.encode(), raw))
    ((job,), _) = fold_of(entry, careful=True).jobs()
    assert job.doc == DOC.replace("{}", '{"a":"\ufffd\ufffd"}')


@pytest.mark.parametrize(
    "doc", ["not JSON", '{"created":-1}', '{"priority":10}', '{"task":"\\u0000"}', "[]"]
)
def test_a_record_that_shows_nothing_is_kept_as_it_is(doc: str) -> None:
    ((job,), _) = fold_of(entry_of("enqueue", line_of(doc))).jobs()
    assert (job.task, job.tenant, job.priority, job.created) == ("", "default", 5, 0)
    assert job.doc == doc


def test_a_request_to_stop_does_not_outlive_its_attempt_in_the_row_either() -> None:
    lives = Lives()
    for choice in ("enqueue", "fire", "take", "ask", "die", "replay", "fire", "take"):
        lives.do(0, choice)
    model = write_in_batches(lives.entries, {3})
    (job,) = model.jobs.values()
    assert (job["place"], job["attempt"], job["cancel"]) == ("T", 2, None)
