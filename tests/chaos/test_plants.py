"""The same run with a bug planted must fail, and by the right violation: else it would show nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.chaos import Plan, run
from tests.support.history import summary
from tests.support.nemesis import Event
from tests.support.plants import PLANTS, check_plants

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.history import Kind
    from tests.support.servers import OwnServerFactory

pytestmark = pytest.mark.slow

SEED = 7
SECONDS = 7.5
# A worker that comes back after its leases ended, and others that do not.
EVENTS = (
    Event(1.0, "pause", "worker-1"),
    Event(4.5, "kill", "scheduler-1"),
    Event(5.2, "resume", "worker-1"),
    Event(6.2, "kill", "worker-2"),
)

# What each bug leads to; one of these kinds must be found.
FOUND_BY: dict[str, set[Kind]] = {
    "enqueue_loses_zadd": {"lost"},
    "fire_removes_first": {"lost"},
    "take_ignores_dispatched": {"started_after_cancel", "not_cancelled"},
    "finish_ignores_lease": {"stale_finish", "two_ends", "attempt_twice"},
    "reclaim_live_lease": {"live_lease"},
    "enqueue_early": {"early"},
    "cancel_leaves_due": {"started_after_cancel", "not_cancelled", "not_drained"},
}


def test_each_bug_still_fits_the_scripts_and_has_a_run() -> None:
    check_plants()
    assert FOUND_BY.keys() == PLANTS.keys() - {""}


@pytest.mark.parametrize("plant", FOUND_BY)
def test_the_checker_finds_a_planted_bug(
    own_server: OwnServerFactory, tmp_path: Path, plant: str
) -> None:
    plan = Plan(
        seed=SEED, seconds=SECONDS, per_s=60.0, events=EVENTS, plant=plant, drain_within_s=3.0
    )
    _, violations = run(plan, own_server().url, tmp_path)
    print(summary(violations))
    assert {violation.kind for violation in violations} & FOUND_BY[plant], summary(violations)


@pytest.mark.solo
def test_without_a_bug_the_same_run_is_clean_also_when_the_journal_is_trimmed(
    own_server: OwnServerFactory, tmp_path: Path
) -> None:
    plan = Plan(seed=SEED, seconds=SECONDS, per_s=60.0, events=EVENTS, whole_journal=False)
    _, violations = run(plan, own_server().url, tmp_path)
    assert not violations, summary(violations)
