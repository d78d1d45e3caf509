"""The arguments of a task as a JSON object, by name, and back by the task's type hints.

Pure.  Compiled once for a task: a struct whose fields are the parameters, so that decoding with all
its checks is one call into msgspec.  What is encoded is decoded again at once, by the same hints:
an argument that a worker could not read is refused where it was passed.  Types that JSON does not
have (datetime, UUID, sets, structs …) may be used where a hint brings them back as they were.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast, get_type_hints

import msgspec
from msgspec.structs import asdict

from redjob.errors import InvalidArgument, PayloadMismatch
from redjob.payload import check_json, encode_values
from redjob.validate import LIMITS

_UNSET = msgspec.UNSET
_AT = re.compile(r" - at `(\w+)")
_KEYWORD, _EITHER = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD


class Args:
    """The arguments of one item of `enqueue_many`, written as in a call of the task."""

    __slots__ = ("args", "kwargs")

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.args: tuple[Any, ...] = args
        self.kwargs: dict[str, Any] = kwargs


def args_of(item: object) -> Args:
    """Return an item of `enqueue_many` as arguments: Args, a tuple of them, or a dict by name.

    Raises InvalidArgument for anything else.
    """
    kind = type(item).__name__
    if isinstance(item, Args):
        return item
    if isinstance(item, tuple):
        return Args(*cast("tuple[object, ...]", item))
    if isinstance(item, Mapping):
        named = cast("Mapping[object, object]", item)
        if all(isinstance(name, str) for name in named):
            return Args(**cast("Mapping[str, object]", named))
    raise InvalidArgument(
        "arguments", f"of an item are a {kind}", "pass a tuple, a dict or Args(...)"
    )


class _Compiled(NamedTuple):
    """Decoder of the parameters' struct, and whether a parameter may be left out."""

    decode: Callable[[bytes | msgspec.Raw], msgspec.Struct]
    optional: bool


class Arguments:
    """Binds, encodes and decodes the arguments of one function.

    Raises InvalidArgument for a function that takes *args, **kwargs or positional-only parameters:
    these have no name to be stored under.
    """

    __slots__ = (
        "_compiled",
        "_function",
        "_names",
        "_positional",
        "_required",
        "_signature",
        "_task",
    )

    def __init__(self, function: Callable[..., Any], task: str) -> None:
        self._task = task
        self._function = function
        self._signature = inspect.signature(function)
        parameters = self._signature.parameters
        for name, parameter in parameters.items():
            if parameter.kind not in {_EITHER, _KEYWORD}:
                raise InvalidArgument(
                    f"task {task}",
                    f"takes {parameter}"
                    if "*" in str(parameter)
                    else f"takes {name} by position only",
                    "give every parameter a name that can be passed",
                )
        self._names = frozenset(parameters)
        self._positional = tuple(n for n, p in parameters.items() if p.kind is _EITHER)
        self._required = frozenset(
            n for n, p in parameters.items() if p.default is inspect.Parameter.empty
        )
        self._compiled: _Compiled | None = None

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """Return the arguments that were passed as a JSON object; defaults are not stored.

        Raises PayloadMismatch for arguments that the function would not take, InvalidArgument for
        values that are not JSON or beyond the limits.
        """
        values = self._bind(args, kwargs)
        doc = encode_values("", values)
        try:
            back = self.decode(doc)
        except PayloadMismatch as error:
            self._explain(error, values)
            raise
        if back != values:
            for name, value in values.items():
                if back[name] != value:
                    check_json(name, value, LIMITS.depth)  # a tuple comes back as a list, and may
        return doc

    def decode(self, payload: bytes | msgspec.Raw) -> dict[str, Any]:
        """Return stored arguments by name, checked and made by the type hints.

        Raises PayloadMismatch that names the argument, InvalidArgument for hints of no use.
        """
        decode, optional = self._compiled or self.compile()
        try:
            found = asdict(decode(payload))
        except (msgspec.DecodeError, RecursionError) as error:
            raise PayloadMismatch(f"task {self._task}: {_readable(error)}") from error
        if optional:
            return {name: value for name, value in found.items() if value is not _UNSET}
        return found

    def compile(self) -> _Compiled:
        """Resolve the hints; done at first use, when all of the task's module is there.

        Raises InvalidArgument for hints that cannot be resolved or read from JSON.
        """
        try:
            hints = get_type_hints(self._function, include_extras=True)
            fields: list[Any] = [
                (name, hints.get(name, Any))
                if name in self._required
                else (name, hints.get(name, Any), _UNSET)
                for name in self._signature.parameters
            ]
            struct = msgspec.defstruct(
                "Arguments", fields, kw_only=True, forbid_unknown_fields=True
            )
            decode = msgspec.json.Decoder(struct).decode
        except Exception as error:
            raise InvalidArgument(
                f"task {self._task}",
                f"has type hints that cannot be used ({error})",
                "use types that msgspec reads from JSON, imported at run time",
            ) from error
        self._compiled = _Compiled(decode, len(self._required) < len(self._names))
        return self._compiled

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        # A tenth of the time of Signature.bind, which is left to say what is wrong.
        values = dict(zip(self._positional, args, strict=False))
        if kwargs:
            size = len(values) + len(kwargs)
            values.update(kwargs)
        else:
            size = len(values)
        if (
            len(args) > len(self._positional)
            or len(values) != size  # passed by position and by name
            or not self._required <= values.keys() <= self._names
        ):
            try:
                self._signature.bind(*args, **kwargs)
            except TypeError as error:
                raise PayloadMismatch(f"task {self._task}: {error}") from error
        return values

    def _explain(self, error: PayloadMismatch, values: dict[str, Any]) -> None:
        """Say that the value is not JSON where that is why its hint cannot read it back."""
        at = _AT.search(str(error))
        if at and at[1] in values:
            check_json(at[1], values[at[1]], LIMITS.depth)


def _readable(error: BaseException) -> str:
    text = str(error).replace("$.", "").replace("Object ", "")
    return text if text.startswith("JSON") else text[:1].lower() + text[1:]
