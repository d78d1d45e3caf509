"""How many jobs may run at once, and the one bell of the event loop for "something has changed"."""

from __future__ import annotations

import asyncio


class Slots:
    """Free places for jobs; used from one event loop.

    `changed` is set whenever a place became free or the fetcher got news. Who waits looks at its own
    condition, clears the event and waits, with no await between: so no change is missed.
    """

    __slots__ = ("changed", "free", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self.free = total
        self.changed = asyncio.Event()

    def reserve(self, most: int) -> int:
        """Take up to `most` places; return how many."""
        taken = min(self.free, most)
        self.free -= taken
        return taken

    def release(self, count: int = 1) -> None:
        """Give places back."""
        self.free += count
        self.changed.set()
