"""Payloads: JSON objects that come back as they went in, within the limits of size and depth.

One rule decides what is JSON: **what is stored must give back what was passed** (a tuple may come
back as a list).  So NaN, sets, bytes or numbers as keys, all of which an encoder would quietly turn
into something else, are refused, and the check runs at the speed of the encoder.  Only what looks
odd is walked through in Python, to find and name the culprit.  Values themselves are never shown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from enum import Enum
from hashlib import sha256
from typing import Any, TypeVar, cast

import msgspec

from redjob.config import Limits
from redjob.errors import InvalidArgument
from redjob.validate import LIMITS

T = TypeVar("T")
JSON = "pass text, numbers, booleans, None, lists and dicts with text keys"
_INT_LOW, _INT_HIGH = -(1 << 63), (1 << 64) - 1
_ROOT = re.compile(r"[.\[]")  # Those of msgspec and of Unicode are ValueErrors.
_NOT_CODED = (TypeError, ValueError, OverflowError, RecursionError)

_encode = msgspec.json.Encoder().encode
_encode_64_bit = msgspec.msgpack.Encoder().encode  # has no integers of more than 64 bits
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode


def encode_payload(payload: object, limits: Limits = LIMITS) -> bytes:
    """Return a mapping as the JSON object that is stored.

    Raises InvalidArgument for what is not an object of JSON values, or beyond the limits.
    """
    if not isinstance(payload, Mapping):
        raise InvalidArgument(
            "payload", f"is a {type(payload).__name__}", "pass a dict: the arguments by name"
        )
    values = dict(cast("Mapping[str, object]", payload))
    doc = encode_values("payload", values, limits)
    if _tried(_decode, doc, "payload", values, limits) != values:
        check_json("payload", values, limits.depth)
    return doc


def encode_values(path: str, values: dict[str, object], limits: Limits = LIMITS) -> bytes:
    """Encode a dict and check the size and shape of what came out, not what it was made from.

    Raises InvalidArgument.
    """
    doc = _tried(_encode, values, path, values, limits)
    if len(doc) > limits.payload_bytes:
        raise InvalidArgument(
            "payload",
            f"has {len(doc)} bytes, more than {limits.payload_bytes}",
            "store it elsewhere and pass a reference",
        )
    _tried(_encode_64_bit, values, path, values, limits)
    # Brackets inside text are counted too: that only makes the slow check run for nothing.
    if doc.count(b"{") + doc.count(b"[") > limits.depth:
        check_json(path, _tried(_decode, doc, path, values, limits), limits.depth)
    return doc


def body_hash(task: str, queue: str, payload: bytes) -> str:
    """Return what tells a repeated job from another one with the same key: 32 hex digits.

    The first 16 bytes of SHA-256 over ``task NUL queue NUL payload``, the payload as `canonical`.
    """
    parts = (task.encode(), queue.encode(), canonical(payload))
    return sha256(b"\0".join(parts)).hexdigest()[:32]


def canonical(payload: bytes) -> bytes:
    """Return a payload as compact JSON in UTF-8, the keys of every object in the order of their code points."""
    return _encode_sorted(_decode(payload))


def check_json(path: str, value: object, room: int) -> None:
    """Raise InvalidArgument at the first value that is not JSON, or nested deeper than `room`.

    `path` is where the value stands, "" for the arguments of a task.
    """
    if isinstance(value, dict | list | tuple):
        if room == 0:
            # The path would be as long as the nesting is deep.
            raise InvalidArgument(_ROOT.split(path)[0], "is nested too deep", "flatten it")
        if isinstance(value, dict):
            _check_object(path, cast("dict[object, object]", value), room - 1)
        else:
            for index, item in enumerate(cast("list[object]", value)):
                check_json(f"{path}[{index}]", item, room - 1)
    elif isinstance(value, Enum) and isinstance(value, str | int):
        check_json(path, value.value, room)  # encoded as its value, and equal to it
    else:
        _check_scalar(path, value)


def _check_object(path: str, value: dict[object, object], room: int) -> None:
    for key, item in value.items():
        if not isinstance(key, str):
            raise InvalidArgument(path or "arguments", f"has a {_kind(key)} as a key", JSON)
        _check_text(path, key)
        check_json(f"{path}.{key}" if path else key, item, room)


def _check_scalar(path: str, value: object) -> None:
    kind = type(value)
    if kind is str:
        _check_text(path, cast("str", value))
    elif kind is float:
        if not math.isfinite(cast("float", value)):
            raise InvalidArgument(path, f"is {value}, which JSON does not have", "pass None")
    elif kind is int:
        if not _INT_LOW <= cast("int", value) <= _INT_HIGH:
            raise InvalidArgument(path, "is an integer beyond 64 bits", "pass it as text")
    elif kind is not bool and value is not None:
        raise InvalidArgument(path, f"is a {_kind(value)}, which is not JSON", JSON)


def _check_text(path: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            path, "holds text that is not valid Unicode (a lone surrogate)", "decode it as UTF-8"
        ) from error


def _tried(
    step: Callable[[Any], T], given: object, path: str, values: dict[str, object], limits: Limits
) -> T:
    """Take one step of the coding; if it fails, find out which value is to blame."""
    try:
        return step(given)
    except _NOT_CODED as error:
        for name, value in values.items():
            try:
                _encode_64_bit(value)
                _decode(_encode(value))
            except _NOT_CODED:
                check_json(f"{path}.{name}" if path else name, value, limits.depth - 1)
        check_json(path, values, limits.depth)
        raise InvalidArgument("payload", f"is not JSON ({type(error).__name__})", JSON) from error


def _kind(value: object) -> str:
    return type(value).__name__
