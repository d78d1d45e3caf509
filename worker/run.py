"""Runs attempts: async tasks as tasks of the event loop, others in threads; each ends exactly once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from contextvars import copy_context
from random import Random
from typing import Any

from redjob.calls.work import End
from redjob.context import running
from redjob.worker import outcome
from redjob.worker.attempt import Attempt, Cause
from redjob.worker.pool import ThreadPool
from redjob.worker.quarantine import Quarantine
from redjob.worker.slots import Slots
from redjob.worker.table import RegisteredTask

log = logging.getLogger("redjob.worker")

THREAD_GRACE_S = 5.0  # from the time limit of a thread until it is reported as failed


class Runner:
    """Holds what runs; `attempts` are those that are not yet answered for, `unended` still run.

    Used from the event loop, except `_in_thread`. Each attempt that begins holds a slot already.
    """

    def __init__(
        self,
        slots: Slots,
        report: Callable[[Attempt, End], None],
        changed: Callable[[], None],
        *,
        quarantine: Quarantine,
        now_ms: Callable[[], int],
        rng: Random,
    ) -> None:
        self.quarantine = quarantine
        self.attempts: set[Attempt] = set()
        self.unended = 0
        self._slots = slots
        self._report = report
        self._changed = changed
        self._now_ms = now_ms
        self._rng = rng
        self._pool = ThreadPool(slots.total)
        self._timers: dict[Attempt, asyncio.TimerHandle] = {}
        self._loop = asyncio.get_running_loop()

    @property
    def is_closed(self) -> bool:
        """Whether to take no more jobs for now."""
        return self.quarantine.is_closed(self.unended)

    def begin(self, attempt: Attempt, task: RegisteredTask, arguments: dict[str, Any]) -> None:
        """Start a task for an attempt."""
        attempt.changed = self._changed
        timeout_s = attempt.record.options.timeout_s
        if timeout_s is not None:
            attempt.deadline_ms = self._now_ms() + int(timeout_s * 1000)
        self.attempts.add(attempt)
        self.unended += 1
        if task.is_async:
            run = self._run(attempt, task.function, arguments)
            attempt.task = self._loop.create_task(run, name=attempt.id)
            return
        if timeout_s is not None:
            self._timers[attempt] = self._loop.call_later(timeout_s, self._overrun, attempt)
        self._pool.submit(lambda: self._in_thread(attempt, task.function, arguments))

    def stop(self, attempt: Attempt, cause: Cause) -> None:
        """Tell an attempt to end: cancel an async task, flag a thread; once, so that it can clean up.

        The first cause stays, but a lost lease outranks it.
        """
        if attempt.ended:
            return
        if attempt.cause is None or cause is Cause.LOST:
            attempt.cause = cause
        if attempt.cancelled:
            return
        attempt.cancelled = True
        # Before its first step a cancelled task would end without a word; _run looks at the cause.
        if attempt.began and attempt.task is not None:
            attempt.task.cancel()

    def hand_back(self) -> None:
        """Tell all that still run to end, to be handed back."""
        for attempt in list(self.attempts):
            self.stop(attempt, Cause.HANDED_BACK)

    def abandon(self) -> int:
        """Hand back those that have not ended although they were told to; return how many."""
        left = [attempt for attempt in self.attempts if not attempt.ended]
        for attempt in left:
            self._end(attempt, self._given_up(attempt))
        return len(left)

    async def wait_ended(self, timeout_s: float) -> bool:
        """Wait until nothing runs; return whether it came to that in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.unended:
                    self._slots.changed.clear()
                    await self._slots.changed.wait()
        return not self.unended

    def close(self) -> None:
        """Let the threads end."""
        self._pool.close()
        for timer in self._timers.values():
            timer.cancel()

    async def _run(
        self, attempt: Attempt, function: Callable[..., Any], arguments: dict[str, Any]
    ) -> None:
        running.set(attempt)  # in this task's own copy of the context
        end: End | None = None
        try:
            if attempt.cause is not None:
                end = self._not_begun(attempt)
                return
            attempt.began = True
            try:
                if attempt.deadline_ms is None:
                    result = await function(**arguments)
                else:
                    result = await _limited(attempt, function, arguments)
            except BaseException as exc:  # noqa: BLE001 - SystemExit in a task must not end the worker
                end = self._raised(attempt, exc)
            else:
                end = outcome.succeeded(attempt, result, self._now_ms(), self._rng)
        finally:
            self._end(attempt, end)
            self._slots.release()

    def _in_thread(
        self, attempt: Attempt, function: Callable[..., Any], arguments: dict[str, Any]
    ) -> None:
        result: object = None
        error: BaseException | None = None
        if attempt.cause is None:
            attempt.began = True
            try:
                result = copy_context().run(_call, attempt, function, arguments)
            except BaseException as exc:  # noqa: BLE001 - as in _run
                error = exc
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process is about to end
            self._loop.call_soon_threadsafe(self._thread_ended, attempt, result, error)

    def _thread_ended(self, attempt: Attempt, result: object, error: BaseException | None) -> None:
        if (timer := self._timers.pop(attempt, None)) is not None:
            timer.cancel()
        end: End | None = None
        try:
            if attempt.ended:
                log.warning("thread_ended_late job=%s attempt=%d", attempt.id, attempt.attempt)
            elif not attempt.began:
                end = self._not_begun(attempt)
            elif error is not None:
                end = self._raised(attempt, error)
            else:
                end = outcome.succeeded(attempt, result, self._now_ms(), self._rng)
        finally:
            self._end(attempt, end)
            self._slots.release()

    def _overrun(self, attempt: Attempt) -> None:
        """Flag a thread that has used up its time; what does not end then is given up."""
        self.stop(attempt, Cause.TIMEOUT)
        self._timers[attempt] = self._loop.call_later(THREAD_GRACE_S, self._give_up, attempt)

    def _give_up(self, attempt: Attempt) -> None:
        self._timers.pop(attempt, None)
        log.warning(
            "thread_overran job=%s attempt=%d",
            attempt.id, attempt.attempt,
        )  # fmt: skip
        self._end(attempt, self._given_up(attempt))

    def _raised(self, attempt: Attempt, exc: BaseException) -> End | None:
        name = type(exc).__name__
        log.info(
            "attempt_raised job=%s attempt=%d task=%s error=%s",
            attempt.id,
            attempt.attempt,
            attempt.record.task,
            name if name.isascii() and name.isidentifier() else "unprintable",
        )
        return outcome.raised(attempt, exc, self._now_ms(), self._rng)

    def _given_up(self, attempt: Attempt) -> End | None:
        now_ms = self._now_ms()
        if attempt.cause is Cause.LOST:
            return None
        if attempt.cause is Cause.TIMEOUT:
            error = outcome.timed_out(attempt, now_ms)
            return outcome.failed(attempt, error, now_ms, self._rng)
        return outcome.handed_back(attempt, now_ms)

    def _not_begun(self, attempt: Attempt) -> End | None:
        lost = attempt.cause is Cause.LOST
        return None if lost else outcome.handed_back(attempt, self._now_ms())

    def _end(self, attempt: Attempt, end: End | None) -> None:
        if attempt.ended:
            return
        attempt.ended = True
        attempt.task = None
        self.unended -= 1
        self.quarantine.ended(attempt)
        if end is None:
            self.attempts.discard(attempt)
            return
        if end.outcome == "B" and attempt.began:
            # before it is sent: this process may end before it hears the answer
            log.warning("extra_start job=%s attempt=%d cause=handed_back", end.id, end.attempt)
        self._report(attempt, end)


def _call(attempt: Attempt, function: Callable[..., Any], arguments: dict[str, Any]) -> object:
    running.set(attempt)
    return function(**arguments)


async def _limited(
    attempt: Attempt, function: Callable[..., Any], arguments: dict[str, Any]
) -> object:
    limit = asyncio.timeout(attempt.record.options.timeout_s)
    try:
        async with limit:
            return await function(**arguments)
    except TimeoutError:
        if limit.expired() and attempt.cause is None:
            attempt.cause = Cause.TIMEOUT
        raise
