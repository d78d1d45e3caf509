"""Every test, in lanes: what can share the machine runs in parallel, what measures runs alone."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Sequence

_LANES = (
    # worksteal: tests of clusters are long and stand together, and one process would have them all
    (
        "parallel",
        ("-m", "not solo", "-n", "logical", "--maxprocesses", "4", "--dist", "worksteal"),
    ),
    ("alone", ("-m", "solo")),
)
_LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
_FEW = (
    5  # failures: a machine that is busy for a while breaks some deadline among thousands of tests
)
_FAILED = 1
_NO_TESTS = 5  # pytest's exit code: this lane has none, the other may


def main(arguments: list[str]) -> int:
    """Run both lanes even if the first fails, then tell the figures of the two together."""
    total = Summary()
    failed = False
    again: list[str] = []
    with tempfile.TemporaryDirectory(prefix="redjob-lanes-") as directory:
        for name, options in _LANES:
            print(f"-- tests that run {name}", flush=True)
            summary, code = _run(options, arguments, Path(directory) / f"{name}.json")
            if code == _FAILED and 0 < summary.failed <= _FEW:
                names = sorted(json.loads(_LAST_FAILED.read_text()))
                again += names
                print("-- the machine's doing? again, alone:", *names, sep="\n   ", flush=True)
                once_more = (*options[:2], "--last-failed", "--last-failed-no-failures", "none")
                second, code = _run(once_more, arguments, Path(directory) / f"{name}-again.json")
                summary.passed += second.passed
                summary.failed = second.failed
            failed = failed or code not in {0, _NO_TESTS}
            total.add(summary)
    print("-- all tests", *total.lines(), sep="\n")
    if again:
        print("failed beside others and were run again, alone:", *again, sep="\n   ")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    return int(failed or total.passed == 0)


def _run(options: Sequence[str], arguments: Sequence[str], report: Path) -> tuple[Summary, int]:
    command = [sys.executable, "-m", "pytest", *options, "--summary-json", str(report), *arguments]
    code = subprocess.run(command, check=False).returncode
    return (Summary.load(report) if report.exists() else Summary()), code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
