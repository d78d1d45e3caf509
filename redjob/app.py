"""An application: where its jobs go, and the tasks that its workers know."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, cast, overload

from redjob.aclient import AsyncClient
from redjob.bound import BoundTask
from redjob.client import Client, store_settings
from redjob.clock import Clock
from redjob.config import DEFAULT_NAMESPACE, DEFAULT_URL, env
from redjob.errors import InvalidArgument
from redjob.names import check_name
from redjob.partitions import validate_partitions
from redjob.store.settings import DEADLINE_S, StoreSettings
from redjob.submit import PlanOptions, plan_of
from redjob.task import Task, default_name
from redjob.validate import Ack, ack_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

P = ParamSpec("P")
R = TypeVar("R")


class TaskOptions(PlanOptions, total=False):
    """What `@app.task` takes: a name other than `module.function`, and defaults for its jobs."""

    name: str | None


class Redjob:
    """Tasks and the clients that enqueue them; nothing connects before it is used.

    `redis` is a URL or a redis-py client whose settings are taken. `partitions` need not be given:
    a client takes what is stored. A call ends after `deadline_s` at the latest.
    Raises InvalidArgument.
    """

    def __init__(
        self,
        redis: object = DEFAULT_URL,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        partitions: int | None = None,
        postgres: str | None = None,
        deadline_s: float = DEADLINE_S,
        ack: Ack = "memory",
        clock: Clock | None = None,
    ) -> None:
        if postgres is not None:
            raise InvalidArgument("postgres", "is not supported yet", "leave it out")
        self.settings: StoreSettings = store_settings(redis, deadline_s)
        self.namespace = check_name("namespace", namespace)
        self._ack: Ack = ack_of(ack)
        self.partitions = None if partitions is None else validate_partitions(partitions)
        self.tasks: dict[str, Task] = {}
        self._clock = clock
        self._client: Client | None = None
        # A client belongs to the loop that its connections were made in.
        self._async_clients: dict[asyncio.AbstractEventLoop, AsyncClient] = {}

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Redjob:
        """Make an app from REDJOB_REDIS_URL, REDJOB_NAMESPACE and REDJOB_PARTITIONS.

        Raises InvalidArgument.
        """
        partitions = env("partitions", environ)
        if partitions is not None and not partitions.isdecimal():
            raise InvalidArgument("REDJOB_PARTITIONS", f"is {partitions!r:.80}", "use a number")
        return cls(
            env("redis_url", environ) or DEFAULT_URL,
            namespace=env("namespace", environ) or DEFAULT_NAMESPACE,
            partitions=None if partitions is None else int(partitions),
        )

    @property
    def client(self) -> Client:
        """The blocking client; threads share it."""
        if self._client is None:
            self._client = Client(
                self.settings,
                namespace=self.namespace,
                partitions=self.partitions,
                ack=self._ack,
                clock=self._clock,
            )
        return self._client

    def async_client(self) -> AsyncClient:
        """The client of the running event loop. Raises RuntimeError outside of one."""
        loop = asyncio.get_running_loop()
        client = self._async_clients.get(loop)
        if client is None:
            self._drop_ended()
            client = self._async_clients[loop] = AsyncClient(
                self.settings,
                namespace=self.namespace,
                partitions=self.partitions,
                ack=self._ack,
                clock=self._clock,
            )
        return client

    def _drop_ended(self) -> None:
        """Let go of clients whose loop has ended: asyncio.run, again and again, makes many of them."""
        for loop in [loop for loop in self._async_clients if loop.is_closed()]:
            self._async_clients.pop(loop).abandon()

    def close(self) -> None:
        """Close the blocking client's connections; a later call opens new ones."""
        if self._client is not None:
            self._client.close()

    async def aclose(self) -> None:
        """Close the connections of the running loop's client, and the blocking client's."""
        self._drop_ended()
        client = self._async_clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()
        self.close()

    @overload
    def task(self, function: Callable[P, R], /) -> BoundTask[P, R]: ...
    @overload
    def task(
        self, /, **options: Unpack[TaskOptions]
    ) -> Callable[[Callable[P, R]], BoundTask[P, R]]: ...
    def task(
        self, function: Callable[P, R] | None = None, /, **options: Unpack[TaskOptions]
    ) -> BoundTask[P, R] | Callable[[Callable[P, R]], BoundTask[P, R]]:
        """Register a function as a task: `@app.task`, or `@app.task(queue="email", timeout_s=30)`.

        Raises InvalidArgument for a name or option that makes no sense, a name that is taken, and
        functions whose arguments cannot be bound to names (*args, **kwargs, positional-only).
        """
        if function is not None:
            return self._register(function, options)
        return lambda decorated: self._register(decorated, options)

    def _register(self, function: Callable[P, R], options: TaskOptions) -> BoundTask[P, R]:
        settings: dict[str, Any] = dict(options)
        name = settings.pop("name", None) or default_name(function)
        shared = cast("PlanOptions", settings)
        task = Task(function, plan_of(name, **shared))
        known = self.tasks.get(name)
        if known is not None and not name.startswith("__main__."):  # a notebook cell may run again
            raise InvalidArgument("name", f"{name!r} is registered already", "pass another name=")
        self.tasks[name] = task
        return BoundTask(self, task, function, shared)
