"""redjob: a distributed job scheduler on Redis or Valkey; the public names and nothing else."""

from importlib.metadata import version

__version__ = version("redjob")

__all__ = ["__version__"]
