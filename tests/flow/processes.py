"""Command lines as processes of their own, which do not outlive the test that started them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence


class Process:
    """One `redjob` command line as a process of its own."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "redjob", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # a group of its own, as a shell gives it
            text=True,
        )
        self.seen: list[str] = []

    def wait_for(self, words: str) -> str:
        """Read what it prints until a line has these words, and return that line."""
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self.seen.append(line)
            if words in line:
                return line
        pytest.fail(f"ended without {words!r}: {''.join(self.seen)}")

    def log_has(self, words: str) -> bool:
        """Whether these words were read already."""
        return any(words in line for line in self.seen)

    def type_ctrl_c(self) -> None:
        """Do what a terminal does: the signal goes to the whole foreground group."""
        os.killpg(self.popen.pid, signal.SIGINT)

    def end(self, number: int | None = None) -> int:
        """Send a signal, if one is given, and return the exit code."""
        if number is not None:
            self.popen.send_signal(number)
        code = self.popen.wait(20)
        assert self.popen.stdout is not None
        self.seen += self.popen.stdout.readlines()
        return code


@contextlib.contextmanager
def process(*arguments: str, without_redis_url: bool = False) -> Generator[Process]:
    """A process that does not outlive its test."""
    environment = dict(os.environ)
    if without_redis_url:
        environment.pop("REDJOB_REDIS_URL", None)
    started = Process(arguments, environment)
    try:
        yield started
    finally:
        started.popen.kill()
        started.popen.wait()
        for pipe in (started.popen.stdin, started.popen.stdout):
            assert pipe is not None
            pipe.close()
