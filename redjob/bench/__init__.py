"""Benchmarks: redjob measured by its own public surface, beside the bare client in the same run.

Stands above the services and under the command line; `docs/benchmarks.md` defines every figure.
"""
