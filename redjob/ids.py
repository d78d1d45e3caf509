"""Job ids: UUIDs that carry their Redis slot, drawn at random or derived from a key.

Pure but for the operating system's entropy.  **A job id is a lower-case UUID whose last four hex
digits are its slot** (0000..3fff), so whoever holds an id knows the partition without asking.

- a job without a key: UUIDv7, random slot;
- a job with an idempotency key: UUIDv8 from a hash of (namespace, tenant, key), slot from the hash,
  so that the same key gives the same id in every process and language;
- a schedule: the same from (namespace, name); each of its fires: UUIDv8 from (schedule id, nominal
  time) with the schedule's slot, so that schedule and fires change in one script.

The versions are those of RFC 9562.  Derived ids are fixed for ever by ``docs/vectors.json``.
"""

import os
import re
from hashlib import sha256

from redjob.clock import Clock
from redjob.errors import InvalidArgument
from redjob.partitions import SLOTS

_SLOT_BITS = 14
_WORD_BYTES = 10  # at least the 60 + 14 bits that one id needs
_WORDS_PER_DRAW = 256
_MAX_MS = (1 << 48) - 1
# Where a UUID has neither its version nor its variant, and what stands there for versions 7 and 8.
_FREE_BITS = 0xFFFFFFFF_FFFF_0FFF_3FFF_FFFFFFFFFFFF
_V7 = 0x7000_8000_000000000000
_V7_RANDOM = _FREE_BITS & 0xFFFF_FFFF_FFFFFFFF0000
_V8 = 0x8000_8000_000000000000
_JOB_ID = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[78][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{8}[0-3][0-9a-f]{3}"
)


class JobIds:
    """Draws the ids of jobs that have no idempotency key; threads may share one."""

    __slots__ = ("_clock",)

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def new_job_id(self, slot: int | None = None) -> str:
        """Return a new UUIDv7 in `slot` (0..16383), or in a random one.

        Raises InvalidArgument if there is no such slot.
        """
        word = _random_word()
        if slot is None:
            slot = word % SLOTS
        return new_id(self._clock.wall_ms(), slot, word >> _SLOT_BITS)


def new_id(now_ms: int, slot: int, random_bits: int) -> str:
    """Return the UUIDv7 of this Unix time in ms, this slot (0..16383) and these 60 random bits.

    Two of the 60 (bits 46 and 47) give way to the UUID's variant; higher bits are ignored.
    Raises InvalidArgument for a slot that does not exist or a time outside 48 bits.
    """
    if not 0 <= slot < SLOTS:
        raise InvalidArgument(
            "slot", f"is {slot}, outside 0..{SLOTS - 1}", "pass the slot of a Redis key or job id"
        )
    if not 0 <= now_ms <= _MAX_MS:
        raise InvalidArgument(
            "now_ms", f"is {now_ms}, outside 48 bits", "pass Unix time in milliseconds"
        )
    return _spell(now_ms << 80 | random_bits << 16 & _V7_RANDOM | _V7 | slot)


def keyed_job_id(namespace: str, tenant: str, key: str) -> str:
    """Return the id of the job with this idempotency key: always the same UUIDv8.

    The first 16 bytes of the SHA-256 of ``redjob:key NUL namespace NUL tenant NUL key``, with the
    UUID's version and variant and, as the last two bytes, the slot: digest bytes 16 and 17, big
    endian, modulo 16384.  The key comes last and may hold anything; it is hashed byte for byte,
    without Unicode normalisation.  Raises InvalidArgument for a name that holds NUL or text that
    is not valid Unicode.
    """
    names = _name("namespace", namespace), _name("tenant", tenant)
    return _derived_id(b"\0".join((b"redjob:key", *names, _utf8("key", key))))


def schedule_id(namespace: str, name: str) -> str:
    """Return the id of the schedule of this name: always the same UUIDv8.

    As `keyed_job_id`, from ``redjob:schedule NUL namespace NUL name``, and raises the same.
    """
    names = _name("namespace", namespace), _name("name", name)
    return _derived_id(b"\0".join((b"redjob:schedule", *names)))


def fire_job_id(schedule_id: str, nominal_ms: int) -> str:
    """Return the id of the job that a schedule creates for one nominal time, in Unix ms.

    The UUIDv8 of ``redjob:fire NUL schedule id NUL decimal nominal_ms``, with the schedule's slot:
    a fire that is tried twice is the same job.  Raises InvalidArgument for a malformed schedule id.
    """
    slot = slot_of(schedule_id)
    return _derived_id(f"redjob:fire\0{schedule_id}\0{nominal_ms}".encode(), slot)


def slot_of(job_id: str) -> int:
    """Return the Redis slot (0..16383) that a job or schedule id carries.

    Raises InvalidArgument for anything that is not an id in its one spelling: lower case, with
    hyphens, version 7 or 8.
    """
    if _JOB_ID.fullmatch(job_id) is None:
        raise InvalidArgument(
            "job_id", f"is not a job id: {job_id!r:.80}", "pass the id that enqueue returned"
        )
    return int(job_id[-4:], 16)


def new_token() -> str:
    """Return 16 random hex digits: a request id, a nonce or a worker's name."""
    return f"{_random_word() & 0xFFFF_FFFF_FFFF_FFFF:016x}"


def _derived_id(source: bytes, slot: int | None = None) -> str:
    digest = sha256(source).digest()
    if slot is None:
        slot = int.from_bytes(digest[16:18], "big") % SLOTS
    free = int.from_bytes(digest[:16], "big") & _FREE_BITS & ~0xFFFF
    return _spell(free | _V8 | slot)


def _spell(uuid: int) -> str:
    # A third of the time of str(uuid.UUID(int=...)), and this runs for every job.
    digits = uuid.to_bytes(16, "big").hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _name(field: str, text: str) -> bytes:
    # Without NUL in a name, two different lists of names can never give the same bytes.
    if "\0" in text:
        raise InvalidArgument(field, "holds a NUL character", "remove it")
    return _utf8(field, text)


def _utf8(field: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            field, "is not valid Unicode (a lone surrogate)", "decode it as UTF-8 first"
        ) from error


# The system's entropy, drawn in blocks as a system call an id would cost more than the id itself.
# Not a seeded generator: whoever sees some ids could compute those of other tenants.
_words: list[int] = []

# A child must not hand out the words that its parent is about to hand out.
if hasattr(os, "register_at_fork"):  # absent on Windows, which has no fork
    os.register_at_fork(after_in_child=_words.clear)


def _random_word() -> int:
    """Return 80 random bits; each is given out once, also between threads and after a fork."""
    while True:
        try:
            return _words.pop()  # one bytecode and atomic, so no lock is needed
        except IndexError:
            block = os.urandom(_WORD_BYTES * _WORDS_PER_DRAW)
            # A list and not a generator, so that extend is atomic as well.
            _words.extend(
                [
                    int.from_bytes(block[start : start + _WORD_BYTES], "big")
                    for start in range(0, len(block), _WORD_BYTES)
                ]
            )
