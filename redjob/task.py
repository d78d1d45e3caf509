"""A function as a task: its name, its queue and options, and its arguments as JSON and back.

Pure.  The client encodes with it what the worker decodes with it, so both speak of one contract.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redjob.arguments import Arguments
from redjob.errors import InvalidArgument

if TYPE_CHECKING:
    import msgspec

    from redjob.model import Options
    from redjob.submit import Plan


class Task:
    """A registered function. `plan` holds what its jobs have in common, its name first.

    Raises InvalidArgument for what is not a plain or async function, or takes *args, **kwargs or
    positional-only parameters.
    """

    __slots__ = ("_arguments", "function", "is_async", "plan")

    def __init__(self, function: Callable[..., Any], plan: Plan) -> None:
        self.plan = plan
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        self._arguments = Arguments(_checked(function, plan.task), plan.task)

    def __repr__(self) -> str:
        return f"Task({self.name!r})"

    @property
    def name(self) -> str:
        """The name under which jobs ask for it."""
        return self.plan.task

    @property
    def queue(self) -> str:
        """Where its jobs go unless told otherwise."""
        return self.plan.queue

    @property
    def options(self) -> Options:
        """What its jobs ask of their runs unless told otherwise."""
        return self.plan.options

    def encode_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """Return the arguments that were passed as a JSON object, by name.

        Raises PayloadMismatch for what the function would not take, InvalidArgument for what is
        not JSON or beyond the limits.
        """
        return self._arguments.encode(args, kwargs)

    def decode_arguments(self, payload: msgspec.Raw | bytes) -> dict[str, Any]:
        """Return stored arguments by name, made by the type hints.

        Raises PayloadMismatch that names the argument, InvalidArgument for hints of no use.
        """
        return self._arguments.decode(payload)

    def compile(self) -> None:
        """Resolve the type hints now, as a worker does at its start. Raises InvalidArgument."""
        self._arguments.compile()


def default_name(function: Callable[..., Any]) -> str:
    """Return `module.function`, with the module's real name where it runs as a program.

    So that a job which `python app.py` enqueues is found by a worker that imports `app`.
    """
    module = getattr(function, "__module__", None) or "__main__"
    if module == "__main__":
        module = _program()
    return f"{module}.{getattr(function, '__name__', type(function).__name__)}"


def _program() -> str:
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)  # of `python -m package.module`
    if spec is not None:
        return str(spec.name).removesuffix(".__main__")
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else "__main__"


def _checked(function: object, name: str) -> Callable[..., Any]:
    if not callable(function) or inspect.isclass(function):
        raise InvalidArgument(f"task {name}", f"is {function!r:.80}", "decorate a function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidArgument(
            f"task {name}", "is a generator: calling it would run nothing", "return a value"
        )
    return function
