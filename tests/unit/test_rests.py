"""How long a partition that closes as soon as it is opened is left alone."""

from __future__ import annotations

from redjob.scheduler.takeover import _Rests as Rests  # pyright: ignore[reportPrivateUsage]


def rest_after(rests: Rests, now: float) -> float:
    """How many seconds from now until it may be opened."""
    steps = (now + step / 100 + 1e-6 for step in range(1000))
    return next(at for at in steps if rests.is_over(1, at)) - now


def test_one_that_closes_again_and_again_rests_longer_each_time_and_at_most_five_seconds() -> None:
    rests = Rests()
    now, waited = 100.0, list[float]()
    for _ in range(10):
        rests.opened(1, now)
        waited.append(round(rest_after(rests, now), 2))
        now += waited[-1]
    assert waited[:4] == [0.0, 0.05, 0.1, 0.2]
    assert waited[-1] == 5.0


def test_one_that_stayed_open_for_a_while_is_opened_at_once() -> None:
    rests = Rests()
    for now in (100.0, 100.1, 100.2):
        rests.opened(1, now)
    rests.opened(1, 200.0)
    assert rests.is_over(1, 200.0)
    assert rests.is_over(2, 200.0)
