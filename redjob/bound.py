"""Tasks bound to an app: functions that can also be enqueued, with their own types.

The decorated function stays callable as it was; `enqueue` and the like take the same arguments.
"""

from __future__ import annotations

from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast

from redjob.arguments import Args, args_of
from redjob.errors import RedjobError
from redjob.submit import Draft, EnqueueOptions, Plan, PlanOptions, own_options, plan_of
from redjob.validate import delay_ms_of, wall_ms_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime, timedelta

    from redjob.aclient import AsyncClient
    from redjob.client import Client
    from redjob.job import AsyncJob, EnqueueResult, Job
    from redjob.task import Task
    from redjob.validate import Ack

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class Clients(Protocol):
    """Where a bound task sends its jobs: the app."""

    @property
    def client(self) -> Client:
        """The blocking client."""
        ...

    def async_client(self) -> AsyncClient:
        """The client of the running event loop."""
        ...


class BoundTask(Generic[P, R_co]):
    """A task of an app. Call it to run the function here and now; enqueue it for a worker.

    Enqueueing raises PayloadMismatch for arguments that the function would not take,
    InvalidArgument for what is not JSON or makes no sense, IdempotencyConflict, NotReady,
    StoreFull, Rebuilding, StoreUnavailable.
    """

    def __init__(
        self, app: Clients, task: Task, function: Callable[P, R_co], settings: PlanOptions
    ) -> None:
        self._app = app
        self._function = function
        self._settings = settings
        self._plan: Plan = task.plan
        self._key: str | None = None
        self._expires_at_ms = 0
        self._ack: Ack | None = None
        self.task = task
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the function, as if it had not been decorated."""
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"BoundTask({self.name!r})"

    @property
    def name(self) -> str:
        """The task's name."""
        return self.task.name

    def options(self, **options: Unpack[EnqueueOptions]) -> BoundTask[P, R_co]:
        """Return a copy whose jobs have these options; the others stay. Raises InvalidArgument."""
        shared, key, expires_at_ms, ack = own_options(options)
        settings = cast("PlanOptions", {**self._settings, **shared})
        copy = BoundTask(self._app, self.task, self._function, settings)
        copy._plan = plan_of(self.name, **settings)
        copy._key = key if "idempotency_key" in options else self._key
        copy._ack = ack if "ack" in options else self._ack
        copy._expires_at_ms = expires_at_ms if "expires_at" in options else self._expires_at_ms
        return copy

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Accept a job that is due at once."""
        return self._app.client.submit(self._draft(args, kwargs))

    def enqueue_at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Accept a job for a moment (with a time zone); a past one is due at once."""
        return self._app.client.submit(self._draft_at(when, args, kwargs))

    def enqueue_in(self, delay: timedelta | float, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Accept a job that is due after a delay (seconds or timedelta) on Redis' clock."""
        return self._app.client.submit(self._draft_in(delay, args, kwargs))

    def enqueue_many(
        self, items: Iterable[tuple[Any, ...] | dict[str, Any] | Args]
    ) -> list[EnqueueResult[Job]]:
        """Accept many jobs in few calls; each item is answered by itself, in its place."""
        return self._app.client.submit_many([self._item(item) for item in items])

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> AsyncJob:
        """Accept a job that is due at once."""
        return await self._app.async_client().submit(self._draft(args, kwargs))

    async def aenqueue_at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> AsyncJob:
        """Accept a job for a moment (with a time zone); a past one is due at once."""
        return await self._app.async_client().submit(self._draft_at(when, args, kwargs))

    async def aenqueue_in(
        self, delay: timedelta | float, /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncJob:
        """Accept a job that is due after a delay (seconds or timedelta) on Redis' clock."""
        return await self._app.async_client().submit(self._draft_in(delay, args, kwargs))

    async def aenqueue_many(
        self, items: Iterable[tuple[Any, ...] | dict[str, Any] | Args]
    ) -> list[EnqueueResult[AsyncJob]]:
        """Accept many jobs in few calls; each item is answered by itself, in its place."""
        return await self._app.async_client().submit_many([self._item(item) for item in items])

    def _draft(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Draft:
        payload = self.task.encode_arguments(args, kwargs)
        return Draft(self._plan, payload, self._key, self._expires_at_ms, ack=self._ack)

    def _draft_at(self, when: datetime, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Draft:
        return self._draft(args, kwargs)._replace(run_at_ms=wall_ms_of("when", when))

    def _draft_in(
        self, delay: timedelta | float, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Draft:
        return self._draft(args, kwargs)._replace(delay_ms=delay_ms_of("delay", delay))

    def _item(self, item: object) -> Draft | RedjobError:
        try:
            found = args_of(item)
            return self._draft(found.args, found.kwargs)
        except RedjobError as error:
            return error
