"""The tools of the checks themselves: a broken link is found, the figures of a run add up."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.support.links import broken_links
from tests.support.summary import ON_SERVER, Summary

if TYPE_CHECKING:
    from pathlib import Path


def _report(
    outcome: str, *, when: str = "call", ran_on: tuple[str, ...] = (), reason: str = ""
) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid="test",
        location=("test.py", 1, "test"),
        keywords={},
        outcome=outcome,  # type: ignore[arg-type]  # str instead of its Literal: shorter tables
        longrepr=("test.py", 1, f"Skipped: {reason}") if outcome == "skipped" else None,
        when=when,  # type: ignore[arg-type]  # as above
        user_properties=[(ON_SERVER, kind) for kind in ran_on],
    )


def test_summary_counts_each_test_once_on_each_server() -> None:
    summary = Summary(versions={"valkey": "9.1"})
    summary.add_reports(
        [
            _report("passed", when="setup", ran_on=("valkey",)),
            _report("passed", ran_on=("valkey",)),
            _report("passed", when="teardown", ran_on=("valkey",)),
            _report("passed", ran_on=("valkey", "redis", "redis")),
            _report("failed"),
            _report("failed", when="setup"),
            _report("skipped", when="setup", reason="no cluster"),
        ]
    )
    assert (summary.passed, summary.failed, summary.skipped) == (2, 2, 1)
    assert summary.lines() == [
        "tests: 2 on valkey 9.1, 1 on redis, 0 on fakeredis, 1 on no server",
        "left out: no cluster (1 tests)",
    ]


def test_summaries_of_two_runs_add_up(tmp_path: Path) -> None:
    saved = Summary(passed=1, ran_on=Counter(valkey=1), left_out=Counter({"a": 0, "b": 1}))
    saved.save(tmp_path / "run.json")
    total = Summary()
    for _ in range(2):
        total.add(Summary.load(tmp_path / "run.json"))
    assert total.passed == 2
    assert total.ran_on == {"valkey": 2}
    assert total.lines()[1:] == ["left out: a", "left out: b (2 tests)"]


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("[a](other.md) [b](other.md#the-second-heading) [c](#here)\n# Here", []),
        ("[a](https://example.org/gone) `[b](gone.md)`\n```\n[c](gone.md)\n```", []),
        ("[a](other.md#same) [b](other.md#same-1)", []),
        ("[a](gone.md)", ["page.md: gone.md: no such file"]),
        ("[a][b]\n\n[b]: gone.md", ["page.md: gone.md: no such file"]),
        ("![a](gone.png)", ["page.md: gone.png: no such file"]),
        ("[a](other.md#third)", ["page.md: other.md#third: no such heading"]),
        ("[a](#there)\n# Here", ["page.md: #there: no such heading"]),
    ],
)
def test_links_that_lead_nowhere_are_found(tmp_path: Path, text: str, broken: list[str]) -> None:
    (tmp_path / "page.md").write_text(text)
    (tmp_path / "other.md").write_text("# One\n## The *second* `heading`\n## Same\n## Same\n")
    assert broken_links(tmp_path) == broken
