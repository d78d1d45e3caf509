"""How long a retry waits: bounds, shape and refusals."""

import math
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redjob.errors import InvalidArgument
from redjob.model import Options
from redjob.retry import Jitter, Retry, crash_delay_ms

SEEDS = st.integers(0, 2**32)
COUNTS = st.one_of(st.integers(1, 70), st.integers(1, 10_000))
RETRIES = st.builds(
    Retry,
    base_s=st.floats(0, 1e6),
    factor=st.floats(1, 100),
    cap_s=st.floats(0, 86_400),
    jitter=st.sampled_from(["full", "equal", "none"]),
)


class Extreme(Random):
    """An rng that always draws the lowest (0.0) or the highest (1.0) of its range."""

    def __init__(self, part: float) -> None:
        super().__init__()
        self.part = part

    def random(self) -> float:
        return self.part


@pytest.mark.parametrize(
    ("failures", "delay_ms"), [(1, 1_500), (2, 4_500), (3, 13_500), (4, 20_000), (10_000, 20_000)]
)
def test_without_jitter_the_delay_grows_by_the_factor_up_to_the_cap(
    failures: int, delay_ms: int
) -> None:
    retry = Retry(base_s=1.5, factor=3.0, cap_s=20.0, jitter="none")
    assert retry.delay_ms(failures, Random(0)) == delay_ms


@pytest.mark.parametrize(
    ("jitter", "lowest_ms", "highest_ms"),
    [("full", 0, 8_000), ("equal", 4_000, 8_000), ("none", 8_000, 8_000)],
)
def test_jitter_takes_its_part_of_the_ceiling(
    jitter: Jitter, lowest_ms: int, highest_ms: int
) -> None:
    retry = Retry(jitter=jitter)
    assert retry.delay_ms(4, Extreme(0.0)) == lowest_ms
    assert retry.delay_ms(4, Extreme(1.0)) == highest_ms


def test_full_jitter_is_spread_evenly() -> None:
    rng = Random(7)
    delays = [Retry().delay_ms(4, rng) for _ in range(8_000)]
    quarters = [
        sum(low <= delay < low + 2_000 for delay in delays) for low in range(0, 8_000, 2_000)
    ]
    assert all(1_850 < count < 2_150 for count in quarters)


@given(retry=RETRIES, failures=COUNTS, seed=SEEDS)
def test_a_delay_is_never_negative_and_never_over_the_cap(
    retry: Retry, failures: int, seed: int
) -> None:
    assert 0 <= retry.delay_ms(failures, Random(seed)) <= round(retry.cap_s * 1000)


@given(retry=RETRIES, failures=COUNTS, seed=SEEDS)
def test_the_same_rng_gives_the_same_delay(retry: Retry, failures: int, seed: int) -> None:
    assert retry.delay_ms(failures, Random(seed)) == retry.delay_ms(failures, Random(seed))


@pytest.mark.parametrize("base_s", [0.0, 1e-300, 1.0, 1e300])
def test_ten_thousand_failures_do_not_overflow(base_s: float) -> None:
    retry = Retry(base_s=base_s, factor=1e300, jitter="none")
    assert retry.delay_ms(10_000, Random(0)) == (3_600_000 if base_s else 0)


def test_a_factor_of_one_keeps_the_delay() -> None:
    retry = Retry(base_s=2.0, factor=1.0, jitter="none")
    assert {retry.delay_ms(failures, Random(0)) for failures in (1, 5, 10_000)} == {2_000}


@pytest.mark.parametrize(
    ("crashes", "ceiling_ms"), [(1, 1_000), (2, 2_000), (6, 32_000), (7, 60_000), (10_000, 60_000)]
)
def test_after_a_crash_the_delay_is_between_half_and_all_of_the_ceiling(
    crashes: int, ceiling_ms: int
) -> None:
    assert crash_delay_ms(crashes, Extreme(0.0)) == ceiling_ms // 2
    assert crash_delay_ms(crashes, Extreme(1.0)) == ceiling_ms


@pytest.mark.parametrize("count", [0, -1])
def test_a_count_below_one_is_refused(count: int) -> None:
    with pytest.raises(InvalidArgument, match=r"failures: is .*count from 1"):
        Retry().delay_ms(count, Random(0))
    with pytest.raises(InvalidArgument, match=r"crashes: is .*count from 1"):
        crash_delay_ms(count, Random(0))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("max_attempts", value) for value in (0, -1, 2.5, math.nan, math.inf)),
        *(("base_s", value) for value in (-0.001, math.nan, math.inf)),
        *(("factor", value) for value in (0.5, -2.0, math.nan, math.inf)),
        *(("cap_s", value) for value in (-1.0, math.nan, math.inf, 1e9)),
        ("jitter", "some"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_with_its_field_and_a_remedy(
    field: str, value: object
) -> None:
    arguments: dict[str, Any] = {field: value}
    with pytest.raises(ValueError, match=f"^{field}: is .*; use ") as caught:
        Retry(**arguments)
    assert isinstance(caught.value, InvalidArgument)
    assert caught.value.field == field


def test_what_is_decoded_is_checked_too() -> None:
    with pytest.raises(msgspec.ValidationError, match="max_attempts"):
        msgspec.json.decode(b'{"max_attempts": 0}', type=Retry)


def test_the_defaults_are_those_of_a_stored_job() -> None:
    stored = Options()
    for field in Retry.__struct_fields__:
        assert getattr(Retry(), field) == getattr(stored, field), field
