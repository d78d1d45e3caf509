"""What is JSON: the bytes that are stored give back what was passed, or it is refused by name."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redjob.config import Limits
from redjob.errors import InvalidArgument
from redjob.payload import body_hash, encode_payload

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=20
)


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 2


class Text(str):
    __slots__ = ()


@dataclass
class Point:
    x: int


ODD: list[Any] = [
    {"t": (1, (2, 3))},
    OrderedDict({"a": 1}),
    MappingProxyType({"a": 1}),
    {"c": Colour.RED, "l": Level.HIGH},
    {"中文\u202e": "\x00\r\n{}"},
    {"n": -(1 << 63), "m": (1 << 64) - 1},
    {"text": "[" * 200 + "{" * 200},
    {"digits": "1" * 60},
]
FOREIGN: list[tuple[Any, str]] = [
    ({1, 2}, "is a set, which is not JSON"),
    (frozenset({1}), "is a frozenset, which is not JSON"),
    (math.nan, "is nan, which JSON does not have; pass None"),
    (math.inf, "is inf, which JSON does not have"),
    (b"\x00\xff\x9c", "is a bytes, which is not JSON"),
    (bytearray(b"x"), "is a bytearray"),
    ({1: "a"}, "has a int as a key"),
    ({None: 1}, "has a NoneType as a key"),
    ({(1, 2): 1}, "has a tuple as a key"),
    (1 << 64, "is an integer beyond 64 bits; pass it as text"),
    (-(1 << 63) - 1, "is an integer beyond 64 bits"),
    (10**400, "is an integer beyond 64 bits"),
    ("\ud800", "holds text that is not valid Unicode"),
    ({"\ud800": 1}, "holds text that is not valid Unicode"),
    (datetime(2030, 1, 1, tzinfo=UTC), "is a datetime, which is not JSON"),
    (UUID(int=1), "is a UUID"),
    (Point(1), "is a Point"),
    (Text("x"), "is a Text"),
    (object(), "is a object"),
    (msgspec.Raw(b"{bad"), "is a Raw"),
    (MappingProxyType({"a": 1}), "is a mappingproxy"),
]


def nested(depth: int) -> dict[str, Any]:
    """An object with so many levels, its own counted."""
    value: Any = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return dict(value)


def nested_lists(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


@given(st.dictionaries(TEXT, JSON))
def test_any_json_object_comes_back_as_it_was(payload: dict[str, Any]) -> None:
    assert msgspec.json.decode(encode_payload(payload)) == payload


@pytest.mark.parametrize("payload", ODD)
def test_what_json_has_under_another_name_is_accepted(payload: Any) -> None:
    back = msgspec.json.decode(encode_payload(payload))
    assert msgspec.json.encode(back) == encode_payload(payload)


@pytest.mark.parametrize("payload", [None, [], "x", b"{}", 1, {1, 2}, Point(1)])
def test_a_payload_that_is_no_object_is_refused(payload: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"payload: is a \w+; pass a dict"):
        encode_payload(payload)


@pytest.mark.parametrize(("value", "told"), FOREIGN)
def test_a_value_that_is_not_json_is_named_and_refused(value: Any, told: str) -> None:
    for payload, path in (
        ({"v": value}, "payload.v"),
        ({"a": [0, {"v": value}]}, r"payload.a\[1\].v"),
        ({"a": (0, value)}, r"payload.a\[1\]"),
    ):
        with pytest.raises(InvalidArgument, match=rf"^{path}.*: {told}"):
            encode_payload(payload)


def test_64_levels_are_accepted_and_65_are_not() -> None:
    encode_payload(nested(64))
    encode_payload({"a": nested_lists(63)})
    for payload in (nested(65), {"a": nested_lists(64)}, {"a": nested_lists(100_000)}):
        with pytest.raises(InvalidArgument, match=r"^payload: is nested too deep; flatten it"):
            encode_payload(payload)


def test_a_payload_that_holds_itself_is_nested_too_deep() -> None:
    payload: dict[str, Any] = {}
    payload["self"] = payload
    with pytest.raises(InvalidArgument, match=r"^payload: is nested too deep"):
        encode_payload(payload)


def test_the_limit_of_size_is_exact() -> None:
    limit = Limits().payload_bytes
    fits = {"a": "x" * (limit - len(b'{"a":""}'))}
    assert len(encode_payload(fits)) == limit
    fits["a"] += "x"
    with pytest.raises(InvalidArgument, match=f"payload: has {limit + 1} bytes, more than {limit}"):
        encode_payload(fits)
    with pytest.raises(InvalidArgument, match="pass a reference"):
        encode_payload({"a": "x" * (1 << 26)})


def test_errors_never_show_a_value() -> None:
    secret = "canary-4711"
    for value in ({secret}, Text(secret), "\ud800" + secret, secret.encode()):
        with pytest.raises(InvalidArgument) as caught:
            encode_payload({"v": value})
        assert secret not in str(caught.value)


def test_the_body_hash_does_not_depend_on_the_order_of_keys() -> None:
    one = body_hash("task", "q", b'{"a":1,"b":{"c":2,"d":[1,2]}}')
    assert one == body_hash("task", "q", b'{"b": {"d":[1,2],"c":2}, "a":1}')
    assert len(one) == 32


def test_the_body_hash_tells_task_queue_and_payload_apart() -> None:
    hashes = {
        body_hash("task", "q", b'{"a":1}'),
        body_hash("task", "q", b'{"a":2}'),
        body_hash("task", "q", b'{"a":[1,2]}'),
        body_hash("task", "q", b'{"a":[2,1]}'),
        body_hash("task", "q2", b'{"a":1}'),
        body_hash("task2", "q", b'{"a":1}'),
    }
    assert len(hashes) == 6
    # Fixed for ever: jobs of an older version, or of a client in another language, must be known.
    assert body_hash("task", "q", b'{"a":1}') == "6f7d893389c0d001ff7281ceef6a431f"
