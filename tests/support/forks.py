"""Workers that are there within milliseconds: forked from a process that has imported everything.

A test that kills a hundred of them at their very beginning would otherwise wait for imports. On its
stdin the parent reads `start` (answers the pid of a new worker) and `wait PID` (answers how it ended).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING, Self

import msgspec

from tests.support.runner import log_to_stderr, serve
from tests.support.settings import RunSettings

if TYPE_CHECKING:
    from tests.support.processes import Service, Stack


class Forks:
    """The test's end of it."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @classmethod
    def of(cls, stack: Stack) -> Self:
        """Start the parent as one more service of a stack."""
        text = msgspec.json.encode(stack.settings).decode()
        command = [sys.executable, "-m", "tests.support.forks", text]
        return cls(stack.run("forks", command, answers=True))

    def start(self) -> int:
        """Start a worker and return its pid."""
        return int(self._service.ask("start"))

    def end(self, pid: int, number: int) -> int:
        """Send a worker a signal and return how it ended: its exit code, or minus the signal."""
        os.kill(pid, number)  # not waited for yet, so that the pid is still its own
        return int(self._service.ask(f"wait {pid}"))


def main() -> None:
    """Serve the commands of a test until it is gone."""
    settings = msgspec.json.decode(sys.argv[1], type=RunSettings)
    children: set[int] = set()
    for line in sys.stdin:
        match line.split():
            case ["start"]:
                children.add(pid := _fork(settings))
                print(pid, flush=True)
            case ["wait", number]:
                children.discard(pid := int(number))
                print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
            case _:
                raise ValueError(line)
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def _fork(settings: RunSettings) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        log_to_stderr()
        asyncio.run(serve("worker", settings))
        code = 0
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
