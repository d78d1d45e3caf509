"""The timing wheel: the owner's in-memory tier of due times, a pure data structure of integers.

Hierarchical timing wheel after Varghese & Lauck, "Hashed and Hierarchical Timing Wheels" (SOSP
1987, scheme 7), read digit by digit: a time is written with one digit a level, of 8, 8, 6, 6 and 4
bits from the lowest (256 slots of 1 ms, 256 of 256 ms …), 2**32 ms (49 days) in all.

**Model.** An item lies on the level of the highest digit in which its time differs from the
wheel's, in the slot of that digit; if they differ above the top level it lies in `far`, one list
per 2**32 ms.  When time reaches the start of a slot of an upper level its items are placed anew
(cascade) and sink at least one level; each item moves at most five times.

**Invariants** between calls.
- Each item's time is ≥ the wheel's, but for those in `late`, which were added when already due.
- Nothing wraps round: of two slots, the one on the lower level, or else with the lower digit, is
  earlier, and `far` comes after all.  Slots are numbered in that order, so the earliest occupied
  one is the lowest bit of one integer, and a jump over days costs as little as a step of 1 ms.
- Items of one tick keep the order in which they were added: until the cascade all of them lie in
  one list, after it all in another.
"""

from bisect import bisect_right
from operator import itemgetter
from typing import Generic, TypeVar

from redjob.errors import InvalidArgument

T = TypeVar("T")

# The second is wide too: at each end of its span all that lies just ahead is placed anew in one go,
# a pause that comes every 65 s so, and would come every 16 s with 6 bits.
_DIGIT_BITS = (8, 8, 6, 6, 4)
_TOP_BITS = sum(_DIGIT_BITS)
_SLOT_COUNT = sum(1 << bits for bits in _DIGIT_BITS)


def _levels() -> list[tuple[int, int, int]]:
    """Return (shift of the digit in ms, number of slots, number of the first slot) per level."""
    levels: list[tuple[int, int, int]] = []
    shift = first = 0
    for bits in _DIGIT_BITS:
        levels.append((shift, 1 << bits, first))
        shift += bits
        first += 1 << bits
    return levels


# By bit length of (time of item XOR time of wheel): shift, mask and first slot of the item's level.
_PLACES = [
    (shift, count - 1, first)
    for (shift, count, first), bits in zip(_levels(), _DIGIT_BITS, strict=True)
    for _ in range(bits + (shift == 0))  # the lowest level also holds length 0: due this very tick
]
# By slot number: its width in ms, the mask of the digits above its level, and its start below those.
_SLOTS = [
    (1 << shift, -(count << shift), digit << shift)
    for shift, count, _ in _levels()
    for digit in range(count)
]

_at_ms = itemgetter(0)


class TimingWheel(Generic[T]):
    """Holds items until their time: never early, never lost, O(1) to add and to expire.

    There is no cancel by item, on purpose: the wheel is a hint of what to look at, and Redis
    decides at firing whether the job is still there with a due time.  For the same reason an item
    may be added twice, and then comes out twice.  Not safe for use by several threads.

    It begins at `start_ms`, Unix ms; raises InvalidArgument if that is negative.
    """

    __slots__ = ("_busy", "_far", "_late", "_new", "_now_ms", "_placed", "_slots")

    def __init__(self, start_ms: int) -> None:
        if start_ms < 0:
            raise InvalidArgument("start_ms", f"is {start_ms}", "pass Unix time in milliseconds")
        self._now_ms = start_ms
        self.clear()

    def __len__(self) -> int:
        return self._placed + len(self._new)

    def clear(self) -> None:
        """Drop all items; the wheel's time stays."""
        self._slots: list[list[tuple[int, T]]] = [[] for _ in range(_SLOT_COUNT)]
        self._busy = 0
        self._far: dict[int, list[tuple[int, T]]] = {}
        self._late: list[tuple[int, T]] = []
        self._new: list[tuple[int, T]] = []
        self._placed = 0

    def add(self, at_ms: int, item: T) -> None:
        """Let `advance` return `item` once its clock shows `at_ms`, Unix ms; a past one: next time."""
        # Placed when the wheel is next looked at: one loop over many costs half of a call for each.
        self._new.append((at_ms, item))

    def advance(self, now_ms: int) -> list[tuple[int, T]]:
        """Remove and return all (at_ms, item) with at_ms ≤ `now_ms`, earliest first.

        Items of the same millisecond come in the order in which they were added.  A clock that
        went back moves nothing: it gives only what was added since and is due by it too.
        """
        self._place_new()
        due = self._take_late(now_ms) if self._late else []
        while True:
            if self._busy:
                start_ms, number = self._first_slot()
                if start_ms > now_ms:
                    break
                self._empty(number, start_ms, now_ms, due)
            elif self._far and min(self._far) << _TOP_BITS <= now_ms:
                epoch = min(self._far)
                self._now_ms = epoch << _TOP_BITS
                self._place(self._far.pop(epoch))
            else:
                break
        self._now_ms = max(self._now_ms, now_ms)
        self._placed -= len(due)
        return due

    def next_ms(self) -> int | None:
        """Return when to call `advance` next, Unix ms, or None if the wheel is empty.

        Never later than the earliest item; earlier (by less than the width of that item's slot)
        where a cascade comes first.
        """
        self._place_new()
        if self._late:
            return min(self._late, key=_at_ms)[0]
        if self._busy:
            return self._first_slot()[0]
        return min(self._far) << _TOP_BITS if self._far else None

    def _place_new(self) -> None:
        if self._new:
            self._placed += len(self._new)
            self._place(self._new)
            self._new = []

    def _place(self, entries: list[tuple[int, T]]) -> None:
        slots, now_ms, busy = self._slots, self._now_ms, self._busy
        for entry in entries:
            at_ms = entry[0]
            length = (at_ms ^ now_ms).bit_length()
            if at_ms < now_ms:
                self._late.append(entry)
            elif length <= _TOP_BITS:
                shift, mask, first = _PLACES[length]
                number = first + (at_ms >> shift & mask)
                slot = slots[number]
                if not slot:
                    busy |= 1 << number
                slot.append(entry)
            else:
                self._far.setdefault(at_ms >> _TOP_BITS, []).append(entry)
        self._busy = busy

    def _take_late(self, now_ms: int) -> list[tuple[int, T]]:
        self._late.sort(key=_at_ms)
        # All of them, unless the clock went back behind the wheel's time.
        split = bisect_right(self._late, now_ms, key=_at_ms)
        due, self._late = self._late[:split], self._late[split:]
        return due

    def _first_slot(self) -> tuple[int, int]:
        """Return start in ms and number of the earliest occupied slot; there must be one."""
        number = (self._busy & -self._busy).bit_length() - 1
        _, above, offset = _SLOTS[number]
        return self._now_ms & above | offset, number

    def _empty(self, number: int, start_ms: int, now_ms: int, due: list[tuple[int, T]]) -> None:
        """Move what lies in a slot that time has reached to `due`, or to the levels below."""
        entries = self._slots[number]
        self._slots[number] = []
        self._busy ^= 1 << number
        width = _SLOTS[number][0]
        if width == 1:
            due += entries
        elif start_ms + width - 1 <= now_ms:
            # Time has passed the whole slot: one sort (stable) instead of the cascade.
            due += sorted(entries, key=_at_ms)
        else:
            self._now_ms = start_ms
            self._place(entries)
