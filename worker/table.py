"""What a worker needs of an application: the tasks by name, and where its namespace is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from redjob.store.settings import StoreSettings


class RegisteredTask(Protocol):
    """A task as the worker sees it; `redjob.task.Task` is one."""

    @property
    def name(self) -> str:
        """What records name it by."""
        ...

    @property
    def queue(self) -> str:
        """The queue that its jobs go to by default."""
        ...

    @property
    def is_async(self) -> bool:
        """Whether calling `function` returns a coroutine; else it runs in a thread."""
        ...

    @property
    def function(self) -> Callable[..., Any]:
        """The user's function."""
        ...

    def decode_arguments(self, payload: msgspec.Raw, /) -> dict[str, Any]:
        """Return the arguments by name. Raises PayloadMismatch."""
        ...

    def compile(self) -> None:
        """Resolve the type hints now rather than in the first job. Raises InvalidArgument."""
        ...


class WorkerApp(Protocol):
    """An application as the worker sees it; `redjob.Redjob` is one."""

    @property
    def settings(self) -> StoreSettings:
        """How to reach Redis."""
        ...

    @property
    def namespace(self) -> str:
        """The namespace of its jobs."""
        ...

    @property
    def partitions(self) -> int | None:
        """How many partitions it expects, None for what is stored."""
        ...

    @property
    def tasks(self) -> Mapping[str, RegisteredTask]:
        """The tasks by name."""
        ...
