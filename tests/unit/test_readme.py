"""The limits that the README owns up to are those of the code."""

from __future__ import annotations

from pathlib import Path

from redjob.config import Limits, WorkerConfig
from redjob.model import Options

_README = Path(__file__).resolve().parents[2] / "README.md"


def limits() -> str:
    """The section of the limits, on one line."""
    text = _README.read_text(encoding="utf-8")
    return " ".join(text.split("## Honest limits", 1)[1].split("\n## ", 1)[0].split())


def test_it_says_what_holding_the_gil_does_and_for_how_long_it_may_be_held() -> None:
    lease_s, crashes = WorkerConfig().lease_s, Options().max_crashes
    assert f"C code that holds the GIL for longer than the lease ({lease_s:g} s)" in limits()
    assert crashes == 3
    assert "dead after three such" in limits()


def test_it_says_how_large_a_payload_may_be() -> None:
    size = Limits()
    assert f"up to {size.payload_bytes >> 10} KiB, {size.depth} levels deep" in limits()
