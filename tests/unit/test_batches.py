"""Many jobs in few calls: grouping, partitions, rounds, limits, and answers in their places."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any, Unpack

import pytest

from redjob.batches import JOBS_A_CALL, Accepted, Packer, Turns, Verdict, enqueue_all
from redjob.calls.call import Position
from redjob.calls.jobs import BATCH_BYTES, Enqueued
from redjob.errors import (
    IdempotencyConflict,
    InvalidArgument,
    NotReady,
    RedjobError,
    ScriptFailed,
    StoreUnavailable,
)
from redjob.ids import slot_of
from redjob.keys import Keyspace
from redjob.partitions import SLOTS, partition_of
from redjob.steps import Ahead, Reply
from redjob.submit import PATIENCE_S, REDRAWS, Draft, EnqueueOptions, Submitter, draft_of
from redjob.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redjob.calls.call import Call

NOW_MS = 1_790_000_000_000
KEYS = Keyspace("ns", 16)
AT = Position(1, 0, NOW_MS)


def plain(count: int, **options: Unpack[EnqueueOptions]) -> list[Draft]:
    return [draft_of("t", {"n": n}, options) for n in range(count)]


def keyed(key: str, **options: Unpack[EnqueueOptions]) -> Draft:
    options["idempotency_key"] = key
    return draft_of("t", {}, options)


def ids_of(call: Call[Any]) -> list[str]:
    return [key[-36:] for key in call.keys[10:]]


def docs_of(call: Call[Any]) -> list[bytes]:
    return [arg for arg in call.args[6::2] if isinstance(arg, bytes)]


class Redis:
    """Answers calls as the script would; notes how many were sent before an answer was awaited."""

    def __init__(
        self,
        answer: Callable[[Call[Any]], Enqueued | RedjobError] | None = None,
        *,
        one_server: bool = True,
    ) -> None:
        self.one_server = one_server
        self.calls: list[Call[Any]] = []
        self.under_way = 0
        self.most_under_way = 0
        self.patience: list[float | None] = []
        self.hurried: list[bool] = []
        self.known: dict[str, bytes] = {}
        self._answered = 0
        self._answer = answer or self.accept

    def run(self, drafts: Sequence[Draft | RedjobError]) -> list[Verdict]:
        submitter = Submitter("ns", ManualClock())
        packer = Packer(KEYS, submitter, NOW_MS, Turns(Random(1)), one_server=self.one_server)
        steps = enqueue_all(packer, list(drafts))
        try:
            step = next(steps)
            while True:
                match step:
                    case Ahead(call, patience_s):
                        self.calls.append(call)
                        self.patience.append(patience_s)
                        self.under_way += 1
                        self.most_under_way = max(self.most_under_way, self.under_way)
                        step = steps.send(None)
                    case Reply(hurried):
                        self.hurried.append(hurried)
                        self.under_way -= 1
                        reply = self._answer(self.calls[self._answered])
                        self._answered += 1
                        step = (
                            steps.throw(reply)
                            if isinstance(reply, RedjobError)
                            else steps.send(reply)
                        )
                    case _:
                        pytest.fail(f"unexpected step {step}")
        except StopIteration as stop:
            assert self.under_way == 0
            verdicts: list[Verdict] = stop.value
            return verdicts

    def accept(self, call: Call[Any]) -> Enqueued:
        codes, found = "", {}
        for index, job_id in enumerate(ids_of(call)):
            if job_id in self.known:
                codes += "E"
                found[index] = self.known[job_id]
            else:
                codes += "D"
                self.known[job_id] = docs_of(call)[index]
        return Enqueued(AT, codes, found)


def accepted(verdicts: list[Verdict]) -> list[Accepted]:
    assert all(isinstance(verdict, Accepted) for verdict in verdicts)
    return [verdict for verdict in verdicts if isinstance(verdict, Accepted)]


def test_nothing_to_do_sends_nothing() -> None:
    redis = Redis()
    assert redis.run([]) == []
    assert redis.calls == []


def test_plain_jobs_of_one_kind_go_in_one_call_to_one_partition() -> None:
    redis = Redis()
    verdicts = accepted(redis.run(plain(40)))
    assert len(redis.calls) == 1
    assert [verdict.id for verdict in verdicts] == ids_of(redis.calls[0])
    assert {partition_of(slot_of(v.id), 16) for v in verdicts} == {redis.calls[0].part.index}  # type: ignore[union-attr]
    assert len({verdict.id for verdict in verdicts}) == 40
    assert all(verdict.created for verdict in verdicts)


def test_a_full_batch_is_followed_by_one_in_the_next_partition() -> None:
    redis = Redis()
    redis.run(plain(16 * JOBS_A_CALL))
    parts = [call.part.index for call in redis.calls]  # type: ignore[union-attr]
    assert [len(ids_of(call)) for call in redis.calls] == [JOBS_A_CALL] * 16
    assert sorted(parts) == list(range(16))


def test_a_batch_is_bounded_by_bytes() -> None:
    big = [draft_of("t", {"a": "x" * 200_000}, {}) for _ in range(12)]
    redis = Redis()
    accepted(redis.run(big))
    sizes = [sum(map(len, docs_of(call))) for call in redis.calls]
    assert max(sizes) <= BATCH_BYTES
    assert [len(ids_of(call)) for call in redis.calls] == [5, 5, 2]


def test_kinds_do_not_share_a_call() -> None:
    drafts = [
        draft_of("t", {}, {"queue": queue, "tenant": tenant, "priority": priority})
        for queue in ("a", "b")
        for tenant in ("x", "y")
        for priority in (1, 2)
    ]
    redis = Redis()
    verdicts = accepted(redis.run(drafts * 2))
    assert len(redis.calls) == 8
    assert [verdict.queue for verdict in verdicts] == ["a"] * 4 + ["b"] * 4 + ["a"] * 4 + ["b"] * 4
    assert {tuple(call.args[2:5]) for call in redis.calls} == {
        (queue, tenant, priority)
        for queue in ("a", "b")
        for tenant in ("x", "y")
        for priority in (1, 2)
    }


def test_one_call_is_under_way_while_the_next_is_put_together() -> None:
    redis = Redis()
    redis.run(plain(5 * JOBS_A_CALL))
    assert redis.most_under_way == 2


def test_the_same_key_twice_is_one_job_and_the_first_is_the_first() -> None:
    redis = Redis()
    drafts = [keyed("k1"), keyed("k2"), keyed("k1"), keyed("k1")]
    verdicts = accepted(redis.run(drafts))
    assert [verdict.created for verdict in verdicts] == [True, True, False, False]
    assert verdicts[0].id == verdicts[2].id == verdicts[3].id
    assert all(len(set(ids_of(call))) == len(ids_of(call)) for call in redis.calls)


def test_a_repetition_waits_until_the_first_is_answered_even_in_another_queue() -> None:
    redis = Redis()
    verdicts = redis.run([keyed("k", queue="a"), *plain(3), keyed("k", queue="b")])
    first, last = verdicts[0], verdicts[-1]
    assert isinstance(first, Accepted)
    assert isinstance(last, IdempotencyConflict)
    assert last.job_id == first.id
    assert redis.calls[-1].args[2] == "b"


def test_keyed_jobs_share_a_call_only_within_their_partition() -> None:
    redis = Redis()
    verdicts = accepted(redis.run([keyed(f"k{n}") for n in range(200)]))
    for call in redis.calls:
        assert {partition_of(slot_of(found), 16) for found in ids_of(call)} == {call.part.index}  # type: ignore[union-attr]
    assert len(redis.calls) == 16
    assert len({verdict.id for verdict in verdicts}) == 200


def test_an_error_is_the_answer_of_its_own_item_alone() -> None:
    bad = InvalidArgument("x", "is bad", "mend it")
    late = draft_of("t", {}, {})._replace(run_at_ms=NOW_MS * 10)
    verdicts = Redis().run([*plain(1), bad, late, *plain(1)])
    assert isinstance(verdicts[0], Accepted)
    assert verdicts[1] is bad
    assert isinstance(verdicts[2], InvalidArgument)
    assert isinstance(verdicts[3], Accepted)


def test_each_letter_goes_to_the_job_it_stands_for() -> None:
    verdicts = Redis(lambda _: Enqueued(AT, "SDRTB", {})).run(plain(5))
    accepted(verdicts[:4])
    assert isinstance(verdicts[4], ScriptFailed)


def test_a_refused_call_is_the_answer_of_each_of_its_jobs() -> None:
    verdicts = Redis(lambda _: NotReady("ns")).run([*plain(2), keyed("k")])
    assert [type(verdict) for verdict in verdicts] == [NotReady] * 3


def test_after_silence_no_other_batch_is_sent_and_each_job_is_named() -> None:
    redis = Redis(lambda _: StoreUnavailable("down", outcome="unknown"))
    verdicts = redis.run(plain(4 * JOBS_A_CALL))
    assert len(redis.calls) == 2
    errors = [verdict for verdict in verdicts if isinstance(verdict, StoreUnavailable)]
    assert len(errors) == 4 * JOBS_A_CALL
    assert [error.outcome for error in errors] == ["unknown"] * 2 * JOBS_A_CALL + [
        "refused"
    ] * 2 * JOBS_A_CALL
    assert [error.job_id for error in errors[: 2 * JOBS_A_CALL]] == [
        *ids_of(redis.calls[0]),
        *ids_of(redis.calls[1]),
    ]
    assert redis.hurried == [False, True]


def part_of(call: Call[Any]) -> int:
    assert call.part is not None
    return call.part.index


def test_batches_of_plain_jobs_visit_all_partitions_and_no_neighbours() -> None:
    redis = Redis()
    redis.run(plain(16 * JOBS_A_CALL))
    visited = [part_of(call) for call in redis.calls]
    assert sorted(visited) == list(range(16))
    steps = {(after - before) % 16 for before, after in pairwise(visited)}
    assert steps.isdisjoint({0, 1, 15})


def test_on_a_cluster_a_partition_that_refuses_plain_jobs_is_left_for_another() -> None:
    def answer(call: Call[Any]) -> Enqueued | RedjobError:
        if part_of(call) == part_of(redis.calls[0]):
            return StoreUnavailable("its primary is gone", outcome="refused")
        return redis.accept(call)

    redis = Redis(answer, one_server=False)
    verdicts = accepted(redis.run(plain(3)))
    assert len({part_of(call) for call in redis.calls}) == 2
    assert [verdict.id for verdict in verdicts] == ids_of(redis.calls[-1])
    assert ids_of(redis.calls[0]) != ids_of(redis.calls[-1])


@pytest.mark.parametrize(
    ("drafts", "outcome", "one_server"),
    [(plain(3), "unknown", False), ([keyed("k")], "refused", False), (plain(3), "refused", True)],
    ids=["may-have-got-through", "keyed", "one-server"],
)
def test_else_a_call_stays_where_it_is(drafts: list[Draft], outcome: str, one_server: bool) -> None:
    redis = Redis(lambda _: StoreUnavailable("gone", outcome=outcome), one_server=one_server)
    verdicts = redis.run(drafts)
    assert len(redis.calls) == 1
    assert all(isinstance(verdict, StoreUnavailable) for verdict in verdicts)


def test_where_everything_refuses_the_last_try_has_the_usual_patience() -> None:
    redis = Redis(lambda _: StoreUnavailable("gone", outcome="refused"), one_server=False)
    [verdict] = redis.run(plain(1))
    assert isinstance(verdict, StoreUnavailable)
    assert redis.patience == [PATIENCE_S] * REDRAWS + [None]


@pytest.mark.parametrize("masters", [3, 5])
def test_many_short_lists_are_spread_evenly_over_the_masters_of_a_cluster(masters: int) -> None:
    parts = Keyspace("ns", 64).parts
    for seed in range(20):
        turns = Turns(Random(seed))
        shares = Counter(turns.next(parts).slot * masters // SLOTS for _ in range(200))
        assert max(shares.values()) - min(shares.values()) <= 0.1 * 200 / masters


def test_every_partition_has_its_turn() -> None:
    for partitions in (1, 16, 64, 100):
        parts = Keyspace("ns", partitions).parts
        turns = Turns(Random(3))
        assert {turns.next(parts).index for _ in parts} == set(range(partitions))
