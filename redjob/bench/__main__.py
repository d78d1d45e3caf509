"""`python -m redjob.bench`: the benchmarks by themselves."""

from __future__ import annotations

from redjob.bench.cli import main

if __name__ == "__main__":
    main()
