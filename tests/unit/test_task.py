"""A function as a task: its name, and its arguments as JSON and back by the type hints."""

from __future__ import annotations

import subprocess
import sys
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pytest

from redjob.arguments import Args, args_of
from redjob.errors import InvalidArgument, PayloadMismatch
from redjob.submit import plan_of
from redjob.task import Task, default_name


class Colour(Enum):
    RED = "red"


class Item(msgspec.Struct):
    name: str
    count: int = 1


@dataclass
class Point:
    x: float


def send(user_id: str, template: str = "welcome", *, copies: int = 1) -> None:
    """A task of a test."""


def task_of(function: Callable[..., Any], name: str = "t") -> Task:
    return Task(function, plan_of(name))


def round_trip(function: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
    task = task_of(function)
    return task.decode_arguments(msgspec.Raw(task.encode_arguments(args, kwargs)))


# names


def test_the_default_name_is_module_and_function() -> None:
    assert default_name(send) == f"{__name__}.send"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["work.py"], "work.send"),
        (["-m", "pack.work"], "pack.work.send"),
        (["-m", "pack"], "pack.send"),
    ],
)
def test_a_program_names_its_tasks_as_a_worker_that_imports_it(
    tmp_path: Path, command: list[str], name: str
) -> None:
    code = "from redjob.task import default_name\ndef send(): ...\nprint(default_name(send))\n"
    (tmp_path / "pack").mkdir()
    for file in ("work.py", "pack/work.py", "pack/__init__.py", "pack/__main__.py"):
        (tmp_path / file).write_text(code if file != "pack/__init__.py" else "")
    told = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == name


# what can be a task


def test_an_async_function_is_known_as_one() -> None:
    async def run() -> None: ...

    assert task_of(run).is_async
    assert not task_of(send).is_async


def test_a_wrapped_function_has_the_arguments_of_the_one_inside() -> None:
    @wraps(send)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        send(*args, **kwargs)

    assert round_trip(wrapper, "u1") == {"user_id": "u1"}


def positional(a: int, /) -> None: ...
def star(*args: int) -> None: ...
def double_star(**kwargs: int) -> None: ...
def generator() -> Any:
    yield 1


async def async_generator() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (positional, "takes a by position only"),
        (star, r"takes \*args"),
        (double_star, r"takes \*\*kwargs"),
        (generator, "is a generator"),
        (async_generator, "is a generator"),
        (Point, "is <class"),
        (7, "is 7"),
    ],
)
def test_what_cannot_be_a_task_is_refused_when_it_is_registered(function: Any, told: str) -> None:
    with pytest.raises(InvalidArgument, match=f"task t: {told}.*; "):
        task_of(function)


# arguments


def test_arguments_are_stored_by_name_and_defaults_are_not() -> None:
    task = task_of(send)
    assert task.encode_arguments(("u1",), {}) == b'{"user_id":"u1"}'
    assert task.encode_arguments(("u1", "x"), {"copies": 2}) == (
        b'{"user_id":"u1","template":"x","copies":2}'
    )


def test_arguments_without_hints_come_back_as_json_gives_them() -> None:
    def run(a: Any, b: Any = None) -> None: ...

    run.__annotations__.clear()

    assert round_trip(run, {"x": [1, 2.5, None, True]}, b="中文\u202e") == {
        "a": {"x": [1, 2.5, None, True]},
        "b": "中文\u202e",
    }


def test_hints_bring_back_types_that_json_does_not_have() -> None:
    def run(
        at: datetime,
        wait: timedelta,
        who: UUID,
        price: Decimal,
        tags: set[int],
        raw: bytes,
        colour: Colour,
        item: Item,
        points: list[Point],
        pair: tuple[int, str],
        names: dict[int, str],
    ) -> None: ...

    given = {
        "at": datetime(2030, 1, 1, tzinfo=UTC),
        "wait": timedelta(days=1),
        "who": UUID(int=5),
        "price": Decimal("1.10"),
        "tags": {1, 2},
        "raw": b"\x00\xff\x9c",
        "colour": Colour.RED,
        "item": Item("x"),
        "points": [Point(1.5)],
        "pair": (1, "a"),
        "names": {1: "a"},
    }
    assert round_trip(run, **given) == given


def test_a_tuple_may_come_back_as_a_list_and_an_int_as_a_float() -> None:
    def run(items: list[int], ratio: float) -> None: ...

    assert round_trip(run, (1, 2), 1) == {"items": [1, 2], "ratio": 1.0}


@pytest.mark.parametrize(
    ("args", "kwargs", "told"),
    [
        ((), {}, "missing a required argument: 'user_id'"),
        (("u", "t", 3), {}, "too many positional arguments"),
        (("u",), {"user_id": "v"}, "multiple values for argument 'user_id'"),
        (("u",), {"colour": 1}, "got an unexpected keyword argument 'colour'"),
        ((7,), {}, "expected `str`, got `int` - at `user_id`"),
        (("u",), {"copies": "2"}, "expected `int`, got `str` - at `copies`"),
        (("u",), {"copies": 1.5}, "expected `int`, got `float` - at `copies`"),
        (("u",), {"copies": None}, "expected `int`, got `null` - at `copies`"),
    ],
)
def test_arguments_that_the_function_would_not_take_are_refused(
    args: tuple[Any, ...], kwargs: dict[str, Any], told: str
) -> None:
    with pytest.raises(PayloadMismatch, match=f"^task t: {told}$"):
        task_of(send).encode_arguments(args, kwargs)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (float("nan"), "price: is nan"),
        (float("inf"), "price: is inf"),
        (Decimal("1.1"), "price: is a Decimal, which is not JSON"),
        (b"x", "price: is a bytes"),
        (object(), "price: is a object"),
        ("\ud800", "price: holds text that is not valid Unicode"),
    ],
)
def test_values_that_are_not_json_are_named(value: Any, told: str) -> None:
    def run(at: datetime, price: float) -> None: ...

    with pytest.raises(InvalidArgument, match=told):
        task_of(run).encode_arguments((datetime(2030, 1, 1, tzinfo=UTC), value), {})


def test_a_type_that_no_hint_brings_back_is_refused_though_json_takes_it() -> None:
    def run(when: str, what: Any) -> None: ...

    moment = datetime(2030, 1, 1, tzinfo=UTC)
    with pytest.raises(InvalidArgument, match=r"^when: is a datetime, which is not JSON"):
        task_of(run).encode_arguments((moment, 1), {})
    with pytest.raises(InvalidArgument, match=r"^what\[0\]: is a set, which is not JSON"):
        task_of(run).encode_arguments(("x", [{1}]), {})


def test_limits_hold_for_arguments_as_for_payloads() -> None:
    def run(a: Any) -> None: ...

    task = task_of(run)
    deep: list[Any] = []
    for _ in range(63):
        deep = [deep]
    with pytest.raises(InvalidArgument, match=r"^a: is nested too deep"):
        task.encode_arguments((deep,), {})
    with pytest.raises(InvalidArgument, match=r"^payload: has .* bytes, more than 262144"):
        task.encode_arguments(("x" * 262_144,), {})
    with pytest.raises(InvalidArgument, match=r"^a: is an integer beyond 64 bits"):
        task.encode_arguments((1 << 64,), {})


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (b"{}", "missing required field `user_id`"),
        (b'{"user_id":"u","x":1}', "contains unknown field `x`"),
        (b'{"user_id":1}', "expected `str`, got `int` - at `user_id`"),
        (b'{"user_id":"u","copies":"1"}', "expected `int`, got `str` - at `copies`"),
        (b'["u"]', "expected `object`, got `array`"),
        (b'"u"', "expected `object`, got `str`"),
        (b"{", "input data was truncated"),
        (b"\x00\xff\x9c", "JSON is malformed"),
        (b'{"user_id":"\xff"}', "invalid UTF-8 encoded string"),
        (b"", "input data was truncated"),
    ],
)
def test_a_payload_that_does_not_fit_names_what_is_wrong(payload: bytes, told: str) -> None:
    with pytest.raises(PayloadMismatch, match=f"^task t: {told}"):
        task_of(send).decode_arguments(payload)


def test_a_bomb_of_nesting_is_a_mismatch_and_no_crash() -> None:
    def run(a: Any) -> None: ...

    with pytest.raises(PayloadMismatch, match="recursion"):
        task_of(run).decode_arguments(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


def test_constraints_in_hints_hold_where_a_job_is_enqueued() -> None:
    def run(percent: Annotated[int, msgspec.Meta(ge=0, le=100)]) -> None: ...

    assert round_trip(run, 100) == {"percent": 100}
    with pytest.raises(PayloadMismatch, match="expected `int` <= 100 - at `percent`"):
        task_of(run).encode_arguments((101,), {})


def test_hints_are_resolved_when_first_needed() -> None:
    namespace: dict[str, Any] = {}
    exec("def run(item: 'Later') -> None: ...", namespace)
    task = task_of(namespace["run"])
    with pytest.raises(InvalidArgument, match=r"task t: has type hints that cannot be used.*Later"):
        task.compile()
    namespace["Later"] = Item
    assert task.decode_arguments(b'{"item":{"name":"x"}}') == {"item": Item("x")}


def test_hints_that_json_cannot_tell_apart_are_refused() -> None:
    def run(a: int | list[int] | set[int]) -> None: ...

    with pytest.raises(InvalidArgument, match="task t: has type hints that cannot be used"):
        task_of(run).compile()


@pytest.mark.solo
def test_two_strings_are_decoded_in_a_few_microseconds() -> None:
    def run(a: str, b: str) -> None: ...

    task, payload = task_of(run), msgspec.Raw(b'{"a":"u1","b":"welcome"}')
    seconds = min(timeit.repeat(lambda: task.decode_arguments(payload), number=2000, repeat=9))
    assert seconds / 2000 < 5e-6  # 0.5 µs on a quiet machine


# items of enqueue_many


def test_an_item_is_a_tuple_a_dict_or_args() -> None:
    for item in (("a", 1), Args("a", 1)):
        assert args_of(item).args == ("a", 1)
    assert args_of({"x": 1}).kwargs == {"x": 1}
    assert (args_of(Args("a", b=1)).args, args_of(Args("a", b=1)).kwargs) == (("a",), {"b": 1})


@pytest.mark.parametrize("item", ["a", 1, None, ["a"], {1: 2}, {"a"}])
def test_another_item_is_refused(item: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"pass a tuple, a dict or Args\(\.\.\.\)"):
        args_of(item)
