"""Child processes: started, listened to, started again, and stopped in good order; under dev."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from redjob.clock import Clock, SystemClock

WRONG_USE = 2  # the exit code of a command line that will not get better by being tried again
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.2, 10.0
_LONG_LIFE_S = 10.0  # a child that lived so long starts again without a pause
_LINE_BYTES = 1 << 16
_LAST_WORDS_S = 0.5

Say = Callable[[str, str], None]  # name of the child, one line of its output


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """One `redjob` command line to keep running; `environment` is laid over this process' own."""

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    grace_s: float = 10.0


class WrongUse(Exception):
    """Raised when a child says that its command line is wrong: the fault is ours or the user's."""


class Child:
    """One child; `pid` is None while it is not running, `starts` counts how often it was started."""

    def __init__(self, spec: ChildSpec, say: Say, *, clock: Clock | None = None) -> None:
        self.spec = spec
        self.starts = 0
        self._say = say
        self._clock = clock or SystemClock()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the child that runs now."""
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if running and self._process else None

    def kill(self) -> None:
        """End the child by SIGKILL, if it runs."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def run(self) -> None:
        """Keep the child running until cancelled; then stop it: SIGTERM, and SIGKILL after its grace.

        Raises WrongUse.
        """
        pause_s = _FIRST_PAUSE_S
        while True:
            started = self._clock.monotonic()
            code = await self._live()
            if code == WRONG_USE:
                raise WrongUse(self.spec.name)
            if self._clock.monotonic() - started >= _LONG_LIFE_S:
                pause_s = _FIRST_PAUSE_S
            self._say(self.spec.name, f"ended ({_told(code)}), starts again in {pause_s:g} s")
            await asyncio.sleep(pause_s)
            pause_s = min(_LAST_PAUSE_S, pause_s * 2)

    async def _live(self) -> int:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "redjob", *self.spec.arguments, "--exit-with-stdin",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **self.spec.environment},
            # Ctrl-C in a terminal reaches the parent alone, which asks once. A child that heard it
            # too would take what the parent sends for the second, and not drain.
            start_new_session=True,
        )  # fmt: skip
        self._process = process
        self.starts += 1
        listening = asyncio.create_task(self._listen(process))
        try:
            return await process.wait()
        finally:
            await self._end(process)
            # What the child itself started may hold its output open: that is not waited for.
            await asyncio.wait([listening], timeout=_LAST_WORDS_S)
            listening.cancel()

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(self.spec.grace_s):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        if process.stdin is not None:
            process.stdin.close()
            with contextlib.suppress(OSError):  # its reader is gone, of course
                await process.stdin.wait_closed()

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None, "asked for"
        rest = b""
        while chunk := await process.stdout.read(_LINE_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > _LINE_BYTES:  # no line of a log is so long
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._say(self.spec.name, line.decode("utf-8", "replace"))
        if rest:
            self._say(self.spec.name, rest.decode("utf-8", "replace"))


async def run_children(children: Sequence[Child], stop: asyncio.Event) -> None:
    """Keep children running until `stop`, then stop them all at once. Raises WrongUse."""
    tasks = [asyncio.create_task(child.run()) for child in children]
    stopping = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done - {stopping}:
            task.result()
    finally:
        for task in [stopping, *tasks]:
            task.cancel()
        await asyncio.wait([stopping, *tasks])


def _told(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
