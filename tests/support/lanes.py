"""Every test, in lanes: what can share the machine runs in parallel, what measures runs alone."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.summary import Summary

_LANES = (
    # worksteal: tests of clusters are long and stand together, and one process would have them all
    (
        "parallel",
        ("-m", "not solo", "-n", "logical", "--maxprocesses", "4", "--dist", "worksteal"),
    ),
    ("alone", ("-m", "solo")),
)
_NO_TESTS = 5  # pytest's exit code: this lane has none, the other may


def main(arguments: list[str]) -> int:
    """Run both lanes even if the first fails, then tell the figures of the two together."""
    total = Summary()
    failed = False
    with tempfile.TemporaryDirectory(prefix="redjob-lanes-") as directory:
        for name, options in _LANES:
            print(f"-- tests that run {name}", flush=True)
            report = Path(directory) / f"{name}.json"
            command = [sys.executable, "-m", "pytest", *options, "--summary-json", str(report)]
            code = subprocess.run([*command, *arguments], check=False).returncode
            failed = failed or code not in {0, _NO_TESTS}
            if report.exists():
                total.add(Summary.load(report))
    print("-- all tests", *total.lines(), sep="\n")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    return int(failed or total.passed == 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
