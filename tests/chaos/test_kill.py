"""A minute of load while workers and schedulers are killed: every job is accounted for."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

import pytest

from tests.support.chaos import Plan, run
from tests.support.history import summary

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.servers import OwnServerFactory

pytestmark = [pytest.mark.slow, pytest.mark.solo]

SECONDS = float(os.environ.get("REDJOB_CHAOS_S", "60"))


@pytest.mark.timeout(SECONDS + 240)
def test_every_job_is_accounted_for_while_workers_and_schedulers_are_killed(
    own_server: OwnServerFactory, tmp_path: Path
) -> None:
    """REDJOB_CHAOS_SEED repeats the schedule of a run that failed."""
    seed = int(os.environ.get("REDJOB_CHAOS_SEED") or secrets.randbelow(1_000_000))
    # a low depth limit, so that bursts go through ready as well
    plan = Plan(seed=seed, seconds=SECONDS, depth_limit="3")
    _, violations = run(plan, own_server().url, tmp_path)
    assert not violations, f"seed {seed}\n{summary(violations)}"
