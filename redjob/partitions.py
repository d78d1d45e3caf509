"""Where a job lives: Redis slot → partition → hash tag, and who owns the partition.

Pure arithmetic under every other layer.  A partition is a contiguous range of Redis' own hash
slots, because cluster masters own contiguous ranges too: whole partitions then sit on one master.
All of it is fixed for ever by ``docs/vectors.json``: a changed result would look for existing jobs
under keys where they are not.
"""

from binascii import crc_hqx
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import count

from redjob.errors import InvalidArgument

SLOTS = 16384
"""Number of hash slots of a Redis Cluster."""

MAX_PARTITIONS = 1024
"""At 1024 a partition still has 16 slots, so the middle half in which its tag lies has 8."""

QUORUM_KEYS = 5
"""Number of quorum keys, spread evenly over the slots and so over the masters."""

_SCORE_BYTES = 8


def crc16(data: bytes) -> int:
    """Return the CRC16 of the Redis Cluster specification (XMODEM: polynomial 0x1021, start 0).

    ``binascii.crc_hqx`` is that very polynomial, in C.
    """
    return crc_hqx(data, 0)


def key_slot(key: bytes | str) -> int:
    """Return the slot (0..16383) in which Redis keeps `key`; a string counts as UTF-8.

    Hash-tag rule of the Redis Cluster specification: if there is a ``{``, and a ``}`` after it, and
    something between the first such pair, then only that is hashed.
    """
    data = key.encode() if isinstance(key, str) else key
    start = data.find(b"{")
    if start >= 0:
        end = data.find(b"}", start + 1)
        if end > start + 1:
            data = data[start + 1 : end]
    return crc16(data) % SLOTS


def validate_partitions(partitions: int) -> int:
    """Return `partitions` unchanged if redjob can work with that many.

    Raises InvalidArgument outside 1..1024.
    """
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise InvalidArgument(
            "partitions",
            f"is {partitions}, outside 1..{MAX_PARTITIONS}",
            "use 16 on a single Redis, 64 on a cluster",
        )
    return partitions


def partition_of(slot: int, partitions: int) -> int:
    """Return the partition (0..partitions-1) that holds `slot` (0..16383): slot · P // 16384.

    The arguments are not checked, as this is called for every job.
    """
    return slot * partitions // SLOTS


def slot_range(partition: int, partitions: int) -> range:
    """Return the slots of `partition`, ascending: exactly those that `partition_of` maps to it.

    Raises InvalidArgument if there is no such partition.
    """
    validate_partitions(partitions)
    if not 0 <= partition < partitions:
        raise InvalidArgument(
            "partition",
            f"is {partition}, outside 0..{partitions - 1}",
            "count partitions from 0",
        )
    return _share(partition, partitions)


@lru_cache(maxsize=4 * MAX_PARTITIONS)
def hash_tag(partition: int, partitions: int) -> str:
    """Return the hash tag (without braces) of all Redis keys of `partition`: ``p<partition>.<n>``.

    n is the smallest integer ≥ 0 that puts the tag's slot into the middle half of the partition's
    range: from ``lo + size // 4`` to ``hi - size // 4``, the end excluded, for a range lo..hi of
    `size` slots, hi excluded.  The middle, so that a cluster whose masters' borders lie a little
    off the partitions' keeps the keys with the master that owns most of the partition.
    Raises InvalidArgument if there is no such partition.
    """
    return _tag("p", partition, slot_range(partition, partitions))


@lru_cache(maxsize=QUORUM_KEYS)
def quorum_tag(index: int) -> str:
    """Return the hash tag (without braces) of quorum key `index` (0..4): ``q<index>.<n>``.

    The rule is that of `hash_tag`, over five ranges.  Raises InvalidArgument outside 0..4.
    """
    if not 0 <= index < QUORUM_KEYS:
        raise InvalidArgument(
            "index", f"is {index}, outside 0..{QUORUM_KEYS - 1}", "count quorum keys from 0"
        )
    return _tag("q", index, _share(index, QUORUM_KEYS))


def rendezvous(key: str, nodes: Sequence[str]) -> str:
    """Return the node that owns `key`: the one with the highest hash of (node, key).

    The order of `nodes` does not matter, and a node that joins or leaves moves only the keys that
    it gains or had (rendezvous hashing, Thaler & Ravishankar 1998).  Raises InvalidArgument if
    there are no nodes.
    """
    if not nodes:
        raise InvalidArgument("nodes", "is empty", "pass at least one live node")
    # The name decides between equal scores: every process must come to the same answer.
    return max(nodes, key=lambda node: (_score(node, key), node))


def rendezvous_among(key: str, nodes: Sequence[str], count: int) -> list[str]:
    """Return the `count` nodes with the highest hashes of (node, key), as `rendezvous` ranks them."""
    return sorted(nodes, key=lambda node: (_score(node, key), node), reverse=True)[:count]


def _share(part: int, parts: int) -> range:
    """Return the slots of the part-th of `parts` ranges, by the rounding of `partition_of`."""
    low = -(-part * SLOTS // parts)
    high = -(-(part + 1) * SLOTS // parts)
    return range(low, high)


def _tag(letter: str, part: int, slots: range) -> str:
    quarter = len(slots) // 4
    middle = slots[quarter : len(slots) - quarter]
    prefix = f"{letter}{part}."
    return next(tag for n in count() if crc16((tag := f"{prefix}{n}").encode()) % SLOTS in middle)


def _score(node: str, key: str) -> bytes:
    return blake2b(f"{node}\0{key}".encode(), digest_size=_SCORE_BYTES).digest()
