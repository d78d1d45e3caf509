"""Threads for tasks that are not async.

They are daemons: a task that never ends cannot keep the process from ending, as the threads of
concurrent.futures would, which are joined at exit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread

log = logging.getLogger("redjob.worker")


class ThreadPool:
    """Up to `size` threads, each made when no other is idle."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = Lock()
        self._idle = 0  # threads that wait, minus the work that waits for them
        self._threads = 0

    def submit(self, work: Callable[[], None]) -> None:
        """Run `work`, which must not raise, in a thread; it waits only if all `size` are busy.

        Raises RuntimeError when the system gives not even one thread.
        """
        with self._lock:
            if self._idle > 0 or self._threads >= self._size or not self._grow():
                self._idle -= 1
        self._work.put(work)

    def close(self) -> None:
        """Let idle threads end; busy ones end after their work."""
        with self._lock:
            for _ in range(self._threads):
                self._work.put(None)

    def _grow(self) -> bool:
        """Add a thread, for the work that comes with it; False when the ones there are must do."""
        try:
            Thread(target=self._serve, name="redjob-task", daemon=True).start()
        except RuntimeError:
            if self._threads:
                return False
            raise
        self._threads += 1
        return True

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except BaseException:  # the thread outlives whatever its work did
                log.exception("thread_work_failed")
            del work  # a reference kept while idle would keep the last job's arguments alive
            with self._lock:
                self._idle += 1
