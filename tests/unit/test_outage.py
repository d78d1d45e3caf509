"""What a scheduler's loop does when a step fails: it goes on."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pytest

from redjob.errors import RedjobError, StoreUnavailable
from redjob.scheduler.outage import Outage
from redjob.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Sequence


async def steps_with(failures: Sequence[Exception], outage: Outage) -> int:
    """Run a step that fails in each of these ways; return how often it was called in all."""
    calls = 0
    left = list(failures)
    went_on = asyncio.Event()

    async def step() -> float:
        nonlocal calls
        calls += 1
        if left:
            raise left.pop(0)
        went_on.set()
        return 30.0

    loop = asyncio.create_task(outage.keep_going(step))
    async with asyncio.timeout(10):
        await went_on.wait()
    loop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loop
    return calls


@pytest.mark.parametrize(
    ("failure", "word", "away"),
    [
        (StoreUnavailable("gone", outcome="refused"), "redis_away", True),
        (RedjobError("no"), "redis_refused", False),
        (ValueError("a value that nobody wrote"), "loop_failed", False),
    ],
    ids=["away", "refused", "bug"],
)
async def test_a_loop_goes_on_after_any_failure_and_says_it_once(
    failure: Exception, word: str, away: bool, caplog: pytest.LogCaptureFixture
) -> None:
    closed: list[int] = []
    outage = Outage(ManualClock(), Random(1), on_away=lambda: closed.append(1))
    assert await steps_with([failure] * 3, outage) == 4
    assert caplog.text.count(word) == 1
    assert (len(closed) > 0, outage.is_away) == (away, away)
