"""An app as a user writes it, for command lines of tests that need one."""

from __future__ import annotations

from redjob import Redjob

app = Redjob.from_env()


@app.task(name="plain.add")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
