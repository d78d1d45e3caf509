"""redjob: a distributed job scheduler on Redis or Valkey; the public names and nothing else.

Each name is imported when it is first used, so that `import redjob` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redjob.aclient import AsyncClient
    from redjob.app import Redjob
    from redjob.arguments import Args
    from redjob.bound import BoundTask
    from redjob.change import CancelResult
    from redjob.client import Client
    from redjob.context import JobContext, NoCurrentJob, current_job
    from redjob.errors import (
        Conflict,
        IdempotencyConflict,
        InvalidArgument,
        JobCancelled,
        JobFailed,
        JobNotFound,
        NotReady,
        NotReplicated,
        PartitionMismatch,
        PayloadMismatch,
        Rebuilding,
        RedjobError,
        ResultTimeout,
        ScriptFailed,
        ServerUnsuitable,
        Snooze,
        StoreFull,
        StoreUnavailable,
        UnknownTask,
        WrongState,
    )
    from redjob.job import AsyncJob, EnqueueResult, Job
    from redjob.model import ErrorInfo, JobInfo, JobState
    from redjob.retry import Retry
    from redjob.submit import JobSpec

    __version__: str

_HOMES = {
    "aclient": ("AsyncClient",),
    "app": ("Redjob",),
    "arguments": ("Args",),
    "bound": ("BoundTask",),
    "change": ("CancelResult",),
    "client": ("Client",),
    "context": ("JobContext", "NoCurrentJob", "current_job"),
    "errors": (
        "Conflict", "IdempotencyConflict", "InvalidArgument", "JobCancelled", "JobFailed",
        "JobNotFound", "NotReady", "NotReplicated", "PartitionMismatch", "PayloadMismatch", "Rebuilding",
        "RedjobError", "ResultTimeout", "ScriptFailed", "ServerUnsuitable", "Snooze", "StoreFull",
        "StoreUnavailable", "UnknownTask", "WrongState",
    ),
    "job": ("AsyncJob", "EnqueueResult", "Job"),
    "model": ("ErrorInfo", "JobInfo", "JobState"),
    "retry": ("Retry",),
    "submit": ("JobSpec",),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Args",
    "AsyncClient",
    "AsyncJob",
    "BoundTask",
    "CancelResult",
    "Client",
    "Conflict",
    "EnqueueResult",
    "ErrorInfo",
    "IdempotencyConflict",
    "InvalidArgument",
    "Job",
    "JobCancelled",
    "JobContext",
    "JobFailed",
    "JobInfo",
    "JobNotFound",
    "JobSpec",
    "JobState",
    "NoCurrentJob",
    "NotReady",
    "NotReplicated",
    "PartitionMismatch",
    "PayloadMismatch",
    "Rebuilding",
    "Redjob",
    "RedjobError",
    "ResultTimeout",
    "Retry",
    "ScriptFailed",
    "ServerUnsuitable",
    "Snooze",
    "StoreFull",
    "StoreUnavailable",
    "UnknownTask",
    "WrongState",
    "__version__",
    "current_job",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        value: object = import_module("importlib.metadata").version("redjob")
    elif name in _HOME_OF:
        value = getattr(import_module(f"redjob.{_HOME_OF[name]}"), name)
    else:
        raise AttributeError(f"module 'redjob' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
