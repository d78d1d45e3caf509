"""What a run tells at its end: how many tests ran on which server, and what was left out."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ON_SERVER = "server"  # the user property of a test that names the kind of server it ran on
_NO_SERVER = "none"
_KINDS = ("valkey", "redis", "fakeredis")
# Many a run has no test for them.
_TOLD_IF_USED = ("cluster", "sentinel", "postgres 18", "postgres 15")


@dataclass
class Summary:
    """The figures of one run, or of several added up."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    ran_on: Counter[str] = field(default_factory=Counter[str])
    versions: dict[str, str] = field(default_factory=dict[str, str])
    left_out: Counter[str] = field(default_factory=Counter[str])

    def add_reports(self, reports: Iterable[object]) -> None:
        """Count the reports of a run; with xdist the controller has those of all workers."""
        for report in reports:
            if isinstance(report, pytest.TestReport):
                self._add_report(report)

    def add(self, other: Summary) -> None:
        """Add another run's figures."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.ran_on += other.ran_on
        self.versions |= other.versions
        # What a machine lacks is lacking in each run: told once. A skipped test is one run's.
        for reason, count in other.left_out.items():
            self.left_out[reason] = self.left_out[reason] + count if count else 0

    def lines(self) -> list[str]:
        """The text for people."""
        ran = [
            f"{self.ran_on[kind]} on {self._label(kind)}"
            for kind in (*_KINDS, *_TOLD_IF_USED, _NO_SERVER)
            if self.ran_on[kind] or kind not in _TOLD_IF_USED
        ]
        left_out = [
            f"left out: {reason}" + (f" ({count} tests)" if count else "")
            for reason, count in sorted(self.left_out.items())
        ]
        return [f"tests: {', '.join(ran)}", *(left_out or ["left out: nothing"])]

    def save(self, path: Path) -> None:
        """Write the figures for `load`."""
        path.write_text(json.dumps(vars(self)))

    @classmethod
    def load(cls, path: Path) -> Summary:
        """Read what `save` wrote."""
        figures = json.loads(path.read_text())
        for name in ("ran_on", "left_out"):
            figures[name] = Counter(figures[name])
        return cls(**figures)

    def _add_report(self, report: pytest.TestReport) -> None:
        if report.skipped:
            self.skipped += 1
            if isinstance(report.longrepr, tuple):
                self.left_out[report.longrepr[2].removeprefix("Skipped: ")] += 1
        elif report.failed:
            self.failed += 1
        elif report.when == "call":
            self.passed += 1
        if report.when == "call" and not report.skipped:
            kinds = {value for name, value in report.user_properties if name == ON_SERVER}
            self.ran_on.update(str(kind) for kind in kinds or {_NO_SERVER})

    def _label(self, kind: str) -> str:
        if kind == _NO_SERVER:
            return "no server"
        # "postgres 18" is told as "postgres 18.6"
        return (
            f"{kind.split(maxsplit=1)[0]} {self.versions[kind]}" if kind in self.versions else kind
        )
