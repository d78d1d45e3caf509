"""Scheduler, workers and probe of a run: real processes that end with the benchmark."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

_GRACE_S = 10.0
_LAST_LINES = 8


class ServiceEnded(RuntimeError):
    """Raised when a process of the benchmark ended by itself."""


class Service:
    """A `python -m …` process with a log of its own; a context manager that stops it on exit."""

    def __init__(
        self, name: str, arguments: Sequence[str], environment: Mapping[str, str], directory: Path
    ) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self._output = directory / f"{name}.out"
        with self.log.open("wb") as log, self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=log,
                env={**_own_environment(), **environment},
                start_new_session=True,  # Ctrl-C reaches the benchmark alone, which stops them
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def check(self) -> None:
        """Raise ServiceEnded, with the end of its log, if it is not running any more."""
        code = self._process.poll()
        if code is not None:
            lines = self.log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
            raise ServiceEnded("\n".join([f"{self.name} ended with code {code}", *lines]))

    def stop(self) -> str:
        """Let it end in order, or kill it after a grace; return what it printed."""
        stdin: IO[bytes] | None = self._process.stdin
        if self._process.poll() is None:
            if stdin is not None:
                with contextlib.suppress(OSError):
                    stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE_S)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        return self._output.read_text(errors="replace")

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self._process.wait()

    def output(self) -> str:
        """What it has printed so far."""
        return self._output.read_text(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()


def _own_environment() -> dict[str, str]:
    """This process' environment without settings of redjob: they would be options of the run."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REDJOB_")}
    return {**kept, "PYTHONUNBUFFERED": "1"}
