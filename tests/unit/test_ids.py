"""Job ids: their form, their slot, and that none is drawn twice."""

import os
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redjob.errors import InvalidArgument
from redjob.ids import (
    JobIds,
    fire_job_id,
    keyed_job_id,
    new_id,
    new_token,
    schedule_id,
    slot_of,
)
from redjob.partitions import SLOTS
from redjob.testing import ManualClock

NOW_MS = 1_790_000_000_000
SAMPLES = 4_000
SLOT_NUMBERS = st.integers(0, SLOTS - 1)
NAMES = st.text(alphabet="abcXYZ019_.:-", min_size=1, max_size=20)
KEYS = st.text(max_size=40)


@pytest.fixture
def job_ids() -> JobIds:
    return JobIds(ManualClock(wall_ms=NOW_MS))


def fixed_bits(samples: list[int]) -> int:
    """Return the bits, of 128, that are the same in all samples."""
    differing = 0
    for sample in samples:
        differing |= sample ^ samples[0]
    return ~differing & (1 << 128) - 1


def test_an_id_carries_the_time_at_which_it_was_drawn(job_ids: JobIds) -> None:
    assert UUID(job_ids.new_job_id()).int >> 80 == NOW_MS


def test_an_id_is_drawn_in_the_slot_that_is_asked_for(job_ids: JobIds) -> None:
    for slot in (0, 1, 5_798, SLOTS - 1):
        assert slot_of(job_ids.new_job_id(slot)) == slot


def test_slots_are_spread_evenly(job_ids: JobIds) -> None:
    quarters = Counter(slot_of(job_ids.new_job_id()) * 4 // SLOTS for _ in range(SAMPLES))
    assert all(850 < quarters[quarter] < 1_150 for quarter in range(4))


def test_all_of_an_id_is_random_but_time_version_variant_and_the_two_bits_above_the_slot(
    job_ids: JobIds,
) -> None:
    samples = [UUID(job_ids.new_job_id()).int for _ in range(200)]
    time, version, variant, above_slot = (1 << 48) - 1 << 80, 0xF << 76, 0b11 << 62, 0b11 << 14
    assert fixed_bits(samples) == time | version | variant | above_slot


def test_no_id_is_drawn_twice_by_threads_that_share_one_generator(job_ids: JobIds) -> None:
    def draw(slot: int) -> list[str]:
        return [job_ids.new_job_id(slot) for _ in range(SAMPLES)]

    with ThreadPoolExecutor(8) as pool:
        drawn = [job_id for batch in pool.map(draw, [7] * 8) for job_id in batch]
    assert len(set(drawn)) == len(drawn) == 8 * SAMPLES


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.filterwarnings(
    "ignore:.*use of fork:DeprecationWarning"
)  # xdist has threads; ours exits
def test_a_forked_child_does_not_draw_what_its_parent_draws(job_ids: JobIds) -> None:
    job_ids.new_job_id()  # the parent holds drawn entropy from here on
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write_end, "\n".join(drawn_words(job_ids)).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        of_child = pipe.read().split("\n")
    os.waitpid(child, 0)
    assert len(of_child) == 40
    assert not set(of_child) & set(drawn_words(job_ids))


def drawn_words(job_ids: JobIds) -> list[str]:
    """Draw 40 words of entropy and return what can be seen of each: the end of an id, or a token."""
    return [job_ids.new_job_id()[24:] for _ in range(20)] + [new_token() for _ in range(20)]


@given(now_ms=st.integers(0, 2**48 - 1), slot=SLOT_NUMBERS, bits=st.integers(0, 2**60 - 1))
def test_an_id_of_given_parts_is_a_version_7_uuid_that_gives_them_back(
    now_ms: int, slot: int, bits: int
) -> None:
    job_id = new_id(now_ms, slot, bits)
    uuid = UUID(job_id)
    assert str(uuid) == job_id
    assert (uuid.version, uuid.int >> 62 & 0b11) == (7, 0b10)
    assert uuid.int >> 80 == now_ms
    assert uuid.int >> 64 & 0xFFF == bits >> 48
    assert uuid.int >> 16 & (1 << 46) - 1 == bits & (1 << 46) - 1
    assert slot_of(job_id) == slot


def test_random_bits_beyond_the_sixtieth_are_ignored() -> None:
    assert new_id(NOW_MS, 5, 1 << 60 | 77) == new_id(NOW_MS, 5, 77)


def test_later_ids_sort_after_earlier_ones() -> None:
    earlier, later = new_id(NOW_MS, SLOTS - 1, 2**60 - 1), new_id(NOW_MS + 1, 0, 0)
    assert earlier < later


@pytest.mark.parametrize("slot", [-1, SLOTS])
def test_a_slot_that_does_not_exist_is_refused(job_ids: JobIds, slot: int) -> None:
    with pytest.raises(InvalidArgument, match="slot"):
        job_ids.new_job_id(slot)


@pytest.mark.parametrize("now_ms", [-1, 1 << 48])
def test_a_time_that_does_not_fit_is_refused(now_ms: int) -> None:
    with pytest.raises(InvalidArgument, match="now_ms"):
        new_id(now_ms, 0, 0)


@given(namespace=NAMES, tenant=NAMES, key=KEYS)
def test_the_same_key_gives_the_same_version_8_uuid(namespace: str, tenant: str, key: str) -> None:
    job_id = keyed_job_id(namespace, tenant, key)
    assert job_id == keyed_job_id(namespace, tenant, key)
    assert str(UUID(job_id)) == job_id
    assert UUID(job_id).version == 8
    assert 0 <= slot_of(job_id) < SLOTS


def test_where_one_name_ends_and_the_next_begins_makes_a_difference() -> None:
    ids = {
        keyed_job_id("a", "bc", "d"),
        keyed_job_id("ab", "c", "d"),
        keyed_job_id("a", "b", "cd"),
        keyed_job_id("a", "b", "c\0d"),
        keyed_job_id("a", "b", ""),
        schedule_id("a", "bc"),
        schedule_id("ab", "c"),
    }
    assert len(ids) == 7


def test_a_key_is_taken_byte_for_byte() -> None:
    composed, decomposed = "\u00e9", "e\u0301"
    assert keyed_job_id("n", "t", composed) != keyed_job_id("n", "t", decomposed)


def test_a_nul_in_a_name_is_refused_as_it_would_make_two_names_one() -> None:
    with pytest.raises(InvalidArgument, match="namespace"):
        keyed_job_id("a\0b", "t", "k")
    with pytest.raises(InvalidArgument, match="tenant"):
        keyed_job_id("n", "a\0b", "k")
    with pytest.raises(InvalidArgument, match="name"):
        schedule_id("n", "a\0b")


def test_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="key: is not valid Unicode"):
        keyed_job_id("n", "t", "\ud800")


@given(name=NAMES, nominal_ms=st.integers(0, 2**42))
def test_a_fire_lies_in_the_slot_of_its_schedule_and_is_the_same_each_time(
    name: str, nominal_ms: int
) -> None:
    schedule = schedule_id("redjob", name)
    fire = fire_job_id(schedule, nominal_ms)
    assert fire == fire_job_id(schedule, nominal_ms)
    assert slot_of(fire) == slot_of(schedule)
    assert UUID(fire).version == 8
    assert fire not in {schedule, fire_job_id(schedule, nominal_ms + 1)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "0199c7a4-1c00-7abc-8def-0123456716a",
        "0199c7a4-1c00-7abc-8def-0123456716a60",
        "0199c7a4-1c00-7abc-8def-0123456716a6\n",
        "0199C7A4-1c00-7abc-8def-0123456716a6",
        "0199c7a41c007abc8def0123456716a6",
        "0199c7a4-1c00-4abc-8def-0123456716a6",
        "0199c7a4-1c00-7abc-cdef-0123456716a6",
        "0199c7a4-1c00-7abc-8def-012345674000",
        "job_0199c7a4-1c00-7abc-8def-0123456716a6",
        "\uff10199c7a4-1c00-7abc-8def-0123456716a6",
    ],
)
def test_what_is_not_a_job_id_is_refused_and_named(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a job id") as caught:
        slot_of(text)
    assert caught.value.field == "job_id"
    assert caught.value.remedy == "pass the id that enqueue returned"


def test_an_endless_id_does_not_make_an_endless_message() -> None:
    with pytest.raises(InvalidArgument) as caught:
        slot_of("x" * 100_000)
    assert len(str(caught.value)) < 200


def test_a_fire_of_something_that_is_no_schedule_id_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="is not a job id"):
        fire_job_id("billing", NOW_MS)


def test_a_token_is_sixteen_hex_digits_and_none_is_drawn_twice() -> None:
    tokens = [new_token() for _ in range(SAMPLES)]
    assert len(set(tokens)) == SAMPLES
    assert all(len(token) == 16 and set(token) <= set("0123456789abcdef") for token in tokens)
    assert fixed_bits([int(token, 16) for token in tokens]) == (1 << 128) - (1 << 64)
