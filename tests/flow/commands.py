"""Command lines, as a shell runs them but in the test's own process."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any, NamedTuple

from redjob.cli.root import run


class Ran(NamedTuple):
    """One command line and what came of it."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[Any]:
        """What it printed as JSON, an object a line."""
        return [json.loads(line) for line in self.out.splitlines()]


def redjob(*arguments: str) -> Ran:
    """Run one command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    return Ran(code, out.getvalue(), err.getvalue())
