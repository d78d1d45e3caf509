"""`redjob bench`: measures redjob on this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, NoReturn, cast

import click
import msgspec

from redjob.bench import cluster, drain, enqueue, fire, memory, scripts, sustained, takeover, timed
from redjob.bench.best import Bench, best_of
from redjob.bench.report import table, write_figures
from redjob.bench.result import Row
from redjob.bench.servers import choose
from redjob.bench.stage import Options

_EPILOG = """
\b
Example:
  redjob bench drain --concurrency 512 --json
  redjob bench all --quick
"""


class _Kind(NamedTuple):
    """A benchmark's run and the figure by which its runs are compared; `once` where it repeats itself."""

    run: Callable[[Options], Row]
    score: Callable[[Row], float]
    once: bool = False


def _rate(row: Row) -> float:
    return row.jobs_per_s or 0


def _punctual(row: Row) -> float:
    bad = (row.lost or 0) + (row.duplicated or 0) + (row.early or 0)
    return -(row.lateness_ms.p99 if row.lateness_ms else 1e9) - bad * 1e6


def _small(row: Row) -> float:
    return -(row.bytes_per_job or 1e9)


def _cheap(row: Row) -> float:
    return -(row.redis_us_per_job or 1e9)


def _even(row: Row) -> float:
    return -(row.redis_ratio or 1e9)


_BENCHES = {
    "enqueue": _Kind(enqueue.run, _rate),
    "drain": _Kind(drain.run, _rate),
    "timing": _Kind(timed.run_timing, _punctual),
    "burst": _Kind(timed.run_burst, _punctual),
    "memory": _Kind(memory.run, _small),
    "fire": _Kind(fire.run, _rate),
    "scripts": _Kind(scripts.run, _cheap),
    "takeover": _Kind(takeover.run, _punctual, once=True),
    "cluster": _Kind(cluster.run, _even),
    "sustained": _Kind(sustained.run, _punctual),
}


@click.command(epilog=_EPILOG)
@click.argument("which", type=click.Choice([*_BENCHES, "all"]), default="all")
@click.option("--jobs", type=click.IntRange(min=1), help="Jobs a run, instead of the usual number.")
@click.option("--concurrency", "-c", type=click.IntRange(min=1), default=512, show_default=True)
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True)
@click.option(
    "--schedulers", type=click.IntRange(min=2), default=3, show_default=True, help="For takeover."
)
@click.option(
    "--kills", type=click.IntRange(min=1), help=f"Valid ones, for takeover; else {takeover.KILLS}."
)
@click.option("--url", help="Use this server; by default each run starts one of its own.")
@click.option("--server", type=click.Choice(["valkey", "redis"]), help="Which kind of its own.")
@click.option(
    "--runs", type=click.IntRange(min=1), default=3, show_default=True, help="Valid ones."
)
@click.option("--quick", is_flag=True, help="A tenth of the jobs, one run: does it work at all?")
@click.option("--json", "as_json", is_flag=True, help="Print one object as the last line.")
@click.option(
    "--docs",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Write the figures into this Markdown file, between its markers.",
)
def bench(which: str, as_json: bool, docs: Path | None, quick: bool, **settings: object) -> int:
    """Measure one of them by itself, or all of them; docs/benchmarks.md says what each one is."""
    options = Options(quick=quick, **cast("dict[str, int]", settings))  # type: ignore[arg-type]
    if quick:
        options = replace(options, runs=1)
    names = list(_BENCHES) if which == "all" else [which]
    rows: list[Row] = []
    for name in names:
        row = _measure(name, options)
        rows.append(row)
        if as_json and which == "all":
            click.echo(msgspec.json.encode(row))
        elif not as_json:
            click.echo(table([row]))
    if as_json:
        last: object = rows[0] if len(rows) == 1 else {"bench": "all", "rows": rows}
        click.echo(msgspec.json.encode(last))
    if docs is not None:
        write_figures(docs, rows)
    return 0 if all(_counts_add_up(row) for row in rows) else 1


def _measure(name: str, options: Options) -> Row:
    choice = choose(options.server, wants_jemalloc=name == "memory" and not options.url)
    chosen = replace(options, server=choice.kind, preload=choice.preload)
    found = _BENCHES[name]
    run = Bench(name, lambda: found.run(chosen), found.score)
    runs = 1 if found.once else options.runs
    row = best_of(run, runs, lambda text: click.echo(text, err=True))
    row.note = row.note or choice.note
    return row


def _counts_add_up(row: Row) -> bool:
    return not (row.lost or row.duplicated or row.early)


def main() -> NoReturn:
    """Run as a program of its own."""
    code = bench.main(prog_name="python -m redjob.bench", standalone_mode=False)
    sys.exit(code if isinstance(code, int) else 0)
