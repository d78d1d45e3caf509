"""Each benchmark runs, answers with the figures it promises, and its counts add up; nothing is timed here."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import redis

from redjob.bench.best import Bench, best_of
from redjob.bench.report import BEGIN, END, write_figures
from redjob.bench.result import Row, Tail, percentile, spread
from redjob.bench.tally import Tally

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.servers import TestServer

_LIMIT_S = 110
_COUNTED = {"lost": 0, "duplicated": 0}
_FIGURES = {
    "enqueue": {"jobs_per_s", "seconds", "redis_us_per_job", "floor_ratio", "one_by_one_ratio"},
    "drain": {"jobs_per_s", "seconds", "redis_us_per_job", "worker_cpu_us_per_job", "floor_ratio"},
    "timing": {"seconds", "lateness_ms", "early"},
    "burst": {"seconds", "lateness_ms", "early"},
    "memory": {"bytes_per_job", "floor_ratio", "early"},
    "fire": {"jobs_per_s", "seconds", "redis_us_per_job", "floor_ratio"},
}


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "redjob.bench", *words, "--runs", "1", "--json"],
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )


def row_of(*words: str) -> dict[str, Any]:
    """The object in the last line of what the command prints."""
    done = run(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


@pytest.mark.slow
@pytest.mark.parametrize("bench", _FIGURES)
def test_a_benchmark_answers_with_its_figures_and_loses_and_doubles_nothing(bench: str) -> None:
    row = row_of(bench, "--jobs", "200", "--concurrency", "32")
    assert (row["bench"], row["jobs"]) == (bench, 200)
    assert row["server"]
    assert _FIGURES[bench] <= row.keys()
    assert set(row["probe_ms"]) == {"p99", "max"}
    assert {name: row[name] for name in _COUNTED} == _COUNTED
    assert row.get("early", 0) == 0
    if "lateness_ms" in row:
        late = row["lateness_ms"]
        assert 0 <= late["p50"] <= late["p95"] <= late["p99"] <= late["max"]


@pytest.mark.slow
def test_takeover_kills_an_owner_and_counts_every_job() -> None:
    row = row_of("takeover", "--kills", "1", "--schedulers", "2", "--concurrency", "32")
    assert row["kills"] + row["void_kills"] in {1, 2}
    assert 0 < row["takeover_ms"]["p50"] <= row["takeover_ms"]["max"]
    assert row["jobs"] > 1000
    assert {name: row[name] for name in (*_COUNTED, "early")} == {**_COUNTED, "early": 0}
    assert row["lateness_ms"]["p50"] >= 0


@pytest.mark.slow
def test_sustained_counts_every_job_and_times_the_server() -> None:
    row = row_of("sustained", "--jobs", "2000", "--concurrency", "64")
    assert (row["jobs"], row["per_s"]) == (2000, 5000)
    assert {name: row[name] for name in (*_COUNTED, "early")} == {**_COUNTED, "early": 0}
    assert 0 < row["ping_ms"]["p99"] <= row["ping_ms"]["max"]
    assert 0 <= row["lateness_ms"]["p50"] <= row["lateness_ms"]["max"]


@pytest.mark.slow
def test_a_cluster_is_compared_with_a_server_alone() -> None:
    row = row_of("cluster", "--jobs", "1000", "--concurrency", "64")
    assert {name: row[name] for name in _COUNTED} == _COUNTED
    layouts = {"alone", "of 1", "of 3 #1", "of 3 #2", "of 3 #3"}
    phases = {f"{phase} {layout}" for phase in ("drain", "fire") for layout in layouts}
    assert row["cpu_us"].keys() == row["script_us"].keys() == phases
    assert all(cost > 0 for cost in row["script_us"].values())
    assert row["client_us"].keys() == {"alone", "of 1", "of 3"}
    assert row["redis_ratio"] > 0
    assert row["client_ratio"] > 0
    assert row["jobs_split_percent"] >= 0


def test_the_scripts_alone_are_accounted_for_by_phase_and_batch() -> None:
    row = row_of("scripts", "--jobs", "200")
    phases = {name.rpartition(" ")[0] for name in row["script_us"]}
    assert phases == {"enqueue", "enqueue now", "fire", "take", "finish", "take+finish"}
    assert all(cost > 0 for cost in row["script_us"].values())


def test_a_server_that_is_named_is_left_as_it_was(server: TestServer) -> None:
    with redis.Redis.from_url(server.url) as client:
        client.set("somebody:else", "1")
        row = row_of("drain", "--url", server.url, "--jobs", "100", "--workers", "2")
        assert row["workers"] == 2
        assert client.get("somebody:else") == b"1"
        left: Any = client.keys("bench-*")
        assert not left
        client.delete("somebody:else")


def test_wrong_use_is_told_with_code_2() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "redjob", "bench", "nothing"],
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert done.returncode == 2
    assert "nothing" in done.stderr


def test_a_tally_counts_every_start_and_keeps_the_first(tmp_path: Path) -> None:
    tally = Tally.create(tmp_path / "tally", 4)
    for index in (0, 2, 2, 2):
        tally.hit(index)
    other = Tally.attach(tmp_path / "tally")
    assert other.totals() == (2, 2, 2)
    assert other.totals(range(2, 4)) == (1, 1, 2)
    starts = other.starts_ns(range(4))
    assert starts[1] is None
    assert starts[3] is None
    assert starts[0] is not None
    assert starts[2] is not None
    assert starts[0] <= starts[2]
    assert other.span_s() == (starts[2] - starts[0]) / 1e9


def rate(row: Row) -> float:
    return row.jobs_per_s or 0


def test_a_void_run_is_repeated_and_the_best_valid_one_counts() -> None:
    def row(jobs_per_s: int, probe_ms: float) -> Row:
        probe = Tail(p99=probe_ms, max=probe_ms)
        return Row(bench="drain", server="s", jobs=1, jobs_per_s=jobs_per_s, probe_ms=probe)

    rows = iter([row(900, 51.0), row(100, 50.0), row(200, 1.0), row(150, 2.0)])
    said: list[str] = []
    best = best_of(Bench("drain", lambda: next(rows), rate), 3, said.append)
    assert (best.jobs_per_s, best.runs, best.void_runs, best.valid) == (200, 3, 1, True)
    assert len(said) == 1


def test_runs_that_were_all_void_end_and_are_marked() -> None:
    void = Row(bench="fire", server="s", jobs=1, jobs_per_s=7, probe_ms=Tail(p99=60.0, max=60.0))
    best = best_of(Bench("fire", lambda: void, rate), 2, lambda _: None)
    assert (best.runs, best.void_runs, best.valid) == (0, 4, False)


def test_percentiles_are_nearest_ranks() -> None:
    values = [float(number) for number in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.95, 0.99, 1)] == [50, 95, 99, 100]
    assert percentile([3.0], 0.5) == 3
    assert spread([]) is None


def test_figures_replace_what_stands_between_the_markers(tmp_path: Path) -> None:
    file = tmp_path / "benchmarks.md"
    file.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_figures(file, [Row(bench="drain", server="redis 7", jobs=20_000, jobs_per_s=18_000)])
    text = file.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "| drain | redis 7 | 20,000 | jobs_per_s 18,000" in text
    assert "old" not in text
    file.write_text("no markers\n")
    with pytest.raises(ValueError, match="lacks"):
        write_figures(file, [])
