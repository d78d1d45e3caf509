"""Slots, partitions, hash tags and owners: each rule against a second way to compute it."""

from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot as redis_py_key_slot

from redjob import partitions as p
from redjob.errors import InvalidArgument

COUNTS = range(1, 201)
NODES = [f"node-{number}" for number in range(7)]


def crc16_bit_by_bit(data: bytes) -> int:
    """Compute CRC16/XMODEM as its definition reads: polynomial 0x1021, start 0, no reflection."""
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = crc << 1 ^ (0x1021 if crc & 0x8000 else 0)
            crc &= 0xFFFF
    return crc


def test_crc16_gives_the_check_value_of_the_redis_cluster_specification() -> None:
    assert p.crc16(b"123456789") == 0x31C3
    assert p.crc16(b"") == 0


@given(data=st.binary(max_size=80))
def test_crc16_equals_the_computation_bit_by_bit(data: bytes) -> None:
    assert p.crc16(data) == crc16_bit_by_bit(data)


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        ("plain", "plain"),
        ("{user1000}.following", "user1000"),
        ("foo{}{bar}", "foo{}{bar}"),
        ("foo{{bar}}zap", "{bar"),
        ("foo{bar}{zap}", "bar"),
        ("a}b{c}", "c"),
        ("a{b", "a{b"),
        ("{}", "{}"),
        ("", ""),
        ("ключ{тег}", "тег"),
    ],
)
def test_only_a_hash_tag_that_is_not_empty_is_hashed(key: str, hashed: str) -> None:
    assert p.key_slot(key) == crc16_bit_by_bit(hashed.encode()) % p.SLOTS


@given(key=st.text(alphabet="{}ab", max_size=12) | st.text(max_size=40).filter(str.isprintable))
def test_a_key_has_the_slot_that_the_redis_client_sends_it_to(key: str) -> None:
    assert p.key_slot(key) == p.key_slot(key.encode()) == redis_py_key_slot(key.encode())


@pytest.mark.parametrize("count", [*COUNTS, 1000, p.MAX_PARTITIONS])
def test_every_slot_belongs_to_exactly_one_partition_and_the_ranges_say_which(count: int) -> None:
    owners = [p.partition_of(slot, count) for slot in range(p.SLOTS)]
    ranges = [p.slot_range(partition, count) for partition in range(count)]
    assert [partition for partition, slots in enumerate(ranges) for _ in slots] == owners
    assert ranges[0].start == 0
    assert ranges[-1].stop == p.SLOTS
    assert all(left.stop == right.start for left, right in pairwise(ranges))


@pytest.mark.parametrize("count", [*COUNTS, 1000, p.MAX_PARTITIONS])
def test_partitions_differ_by_one_slot_at_most(count: int) -> None:
    sizes = {len(p.slot_range(partition, count)) for partition in range(count)}
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("count", COUNTS)
def test_each_tag_is_the_first_whose_slot_lies_in_the_middle_half_of_its_partition(
    count: int,
) -> None:
    for partition in range(count):
        tag = p.hash_tag(partition, count)
        assert_first_in_the_middle(tag, f"p{partition}.", p.slot_range(partition, count))


def test_quorum_tags_follow_the_same_rule_over_five_ranges() -> None:
    for index in range(p.QUORUM_KEYS):
        slots = p.slot_range(index, p.QUORUM_KEYS)
        assert_first_in_the_middle(p.quorum_tag(index), f"q{index}.", slots)


def assert_first_in_the_middle(tag: str, prefix: str, slots: range) -> None:
    quarter = len(slots) // 4
    middle = range(slots.start + quarter, slots.stop - quarter)
    assert tag.startswith(prefix)
    number = int(tag.removeprefix(prefix))
    assert p.key_slot(f"redjob:{{{tag}}}:due:email") in middle
    assert not any(p.key_slot(f"{prefix}{smaller}") in middle for smaller in range(number))


@pytest.mark.parametrize("count", [1, 3, 16, 1000, p.MAX_PARTITIONS])
def test_a_number_of_partitions_in_range_is_accepted(count: int) -> None:
    assert p.validate_partitions(count) == count


@pytest.mark.parametrize("count", [0, -1, p.MAX_PARTITIONS + 1])
def test_a_number_of_partitions_out_of_range_is_refused(count: int) -> None:
    with pytest.raises(InvalidArgument, match="partitions"):
        p.validate_partitions(count)
    with pytest.raises(InvalidArgument, match="partitions"):
        p.hash_tag(0, count)


@pytest.mark.parametrize("partition", [-1, 16])
def test_a_partition_that_does_not_exist_is_refused(partition: int) -> None:
    with pytest.raises(InvalidArgument, match="partition"):
        p.slot_range(partition, 16)
    with pytest.raises(InvalidArgument, match="partition"):
        p.hash_tag(partition, 16)


@pytest.mark.parametrize("index", [-1, p.QUORUM_KEYS])
def test_a_quorum_key_that_does_not_exist_is_refused(index: int) -> None:
    with pytest.raises(InvalidArgument, match="index"):
        p.quorum_tag(index)


@given(key=st.text(max_size=20), seed=st.integers(0, 1000))
def test_the_owner_does_not_depend_on_the_order_of_the_nodes(key: str, seed: int) -> None:
    shuffled = Random(seed).sample(NODES, len(NODES))
    assert p.rendezvous(key, shuffled) == p.rendezvous(key, NODES)


def test_a_node_that_leaves_moves_only_its_own_partitions() -> None:
    keys = [p.hash_tag(partition, 64) for partition in range(64)]
    before = {key: p.rendezvous(key, NODES) for key in keys}
    gone = NODES[3]
    left = [node for node in NODES if node != gone]
    moved = {key for key in keys if p.rendezvous(key, left) != before[key]}
    assert moved == {key for key in keys if before[key] == gone}


def test_keys_are_spread_over_all_nodes() -> None:
    counts = Counter(p.rendezvous(f"key-{number}", NODES) for number in range(7_000))
    assert all(850 < counts[node] < 1_150 for node in NODES)


def test_an_only_node_owns_everything() -> None:
    assert p.rendezvous("p3.0", ["alone"]) == "alone"


def test_without_nodes_there_is_no_owner() -> None:
    with pytest.raises(InvalidArgument, match="nodes"):
        p.rendezvous("p3.0", [])
