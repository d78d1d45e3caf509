"""Real redjob processes that a test starts, kills, pauses and starts again, and what they logged."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec
import pytest

from tests.support.history_files import read_log, read_replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from tests.support.history import Replaced, Told
    from tests.support.runner import Role
    from tests.support.settings import RunSettings

ROOT = Path(__file__).parents[2]
STOPPED_WITHIN_S = 20.0


class Service:
    """One process that comes back under the same name each time it is started again."""

    def __init__(
        self, name: str, command: Sequence[str], logs: Path, *, answers: bool = False
    ) -> None:
        """Set it up; one that `answers` has its stdout read by `ask`, else that goes to the log."""
        self.name = name
        self.starts = 0
        self._command = command
        self._logs = logs
        self._answers = answers
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id of the last start."""
        assert self._popen is not None
        return self._popen.pid

    @property
    def alive(self) -> bool:
        """Whether it runs now."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How the last start ended, None while it runs."""
        assert self._popen is not None
        return self._popen.poll()

    def start(self) -> Self:
        """Start it, also after it has ended by itself; each start has a log of its own."""
        if self._popen is not None:
            self._wait()
        self.starts += 1
        with (self._logs / f"{self.name}.{self.starts}.log").open("wb") as log:
            self._popen = subprocess.Popen(
                self._command,
                cwd=ROOT,
                stdin=subprocess.PIPE,  # it ends when this one is closed, that is with the test
                stdout=subprocess.PIPE if self._answers else log,
                stderr=log,
            )
        return self

    def send(self, number: int) -> None:
        """Send a signal to the process, which must be there."""
        assert self.alive, f"{self.name} has ended by itself with {self.exit_code}: {self.tail()}"
        assert self._popen is not None
        self._popen.send_signal(number)

    def ask(self, line: str) -> str:
        """Write a line to its stdin and return the line that it answers."""
        assert self._popen is not None
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._popen.stdin.write(f"{line}\n".encode())
        self._popen.stdin.flush()
        answer = self._popen.stdout.readline().decode().strip()
        assert answer, f"{self.name} did not answer {line!r}: {self.tail()}"
        return answer

    def kill(self) -> None:
        """End it as a crash would."""
        if self._popen is not None:
            self._popen.kill()
            self._wait()

    def stop(self, *, within_s: float = STOPPED_WITHIN_S) -> int:
        """Ask it to stop and return its exit code."""
        self.send(signal.SIGTERM)
        return self.wait(within_s=within_s)

    def wait(self, *, within_s: float = STOPPED_WITHIN_S) -> int:
        """Wait for its end and return the exit code."""
        try:
            return self._wait(within_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{self.name} did not end within {within_s:g} s: {self.tail()}")

    def wait_for(self, words: str, *, within_s: float = STOPPED_WITHIN_S) -> None:
        """Wait until the last start has logged these words."""
        wait_until(
            lambda: any(words in line for line in self._lines_of(self.starts)),
            within_s=within_s,
            what=f"{self.name} logs {words}",
        )

    def lines(self) -> Iterator[str]:
        """What all starts have logged."""
        for number in range(1, self.starts + 1):
            yield from self._lines_of(number)

    def tail(self, count: int = 30) -> str:
        """The last lines, for people."""
        return "\n".join(list(self.lines())[-count:])

    def _lines_of(self, number: int) -> list[str]:
        path = self._logs / f"{self.name}.{number}.log"
        return path.read_text(errors="replace").splitlines()

    def _wait(self, within_s: float | None = None) -> int:
        assert self._popen is not None
        code = self._popen.wait(within_s)
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                pipe.close()
        return code


class Stack:
    """The processes of one run; all of them are gone when it is left."""

    def __init__(self, settings: RunSettings, directory: Path) -> None:
        self.settings = settings
        self.services: list[Service] = []
        self._directory = directory
        self._numbers: Counter[str] = Counter()
        self._left = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._left.close()

    def start(self, role: Role, **changed: object) -> Service:
        """Start one more service of a role, with some settings changed."""
        settings = msgspec.structs.replace(self.settings, **changed)
        text = msgspec.json.encode(settings).decode()
        return self.run(role, [sys.executable, "-m", "tests.support.runner", role, text])

    def start_all(self, *, workers: int = 1) -> Service:
        """Start a scheduler, a sweeper and workers; return the first worker."""
        self.start("scheduler")
        self.start("sweeper")
        first, *_ = [self.start("worker") for _ in range(workers)]
        return first

    def run(self, name: str, command: Sequence[str], *, answers: bool = False) -> Service:
        """Start any command line as one more service."""
        self._numbers[name] += 1
        service = Service(
            f"{name}-{self._numbers[name]}", command, self._directory, answers=answers
        )
        self._left.callback(service.kill)
        self.services.append(service)
        return service.start()

    def told(self) -> list[Told]:
        """What all processes have logged about attempts of jobs."""
        return [line for service in self.services for line in read_log(service.lines())]

    def replaced(self) -> list[Replaced]:
        """What they have logged about servers that were restarted or replaced."""
        return [line for service in self.services for line in read_replaced(service.lines())]

    def check_alive(self) -> None:
        """Fail when a process has ended by itself."""
        for service in self.services:
            assert service.alive, f"{service.name} ended with {service.exit_code}: {service.tail()}"


def wait_until(condition: Callable[[], object], *, within_s: float, what: str) -> None:
    """Look again and again until a condition holds; the test fails when it does not in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {within_s:g} s: {what}")
        time.sleep(0.02)
