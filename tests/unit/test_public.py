"""The public names: all there, cheap to import, typed for editors."""

from __future__ import annotations

import subprocess
import sys

import pytest

import redjob


def test_every_public_name_can_be_imported() -> None:
    for name in redjob.__all__:
        assert getattr(redjob, name) is not None
    assert set(redjob.__all__) <= set(dir(redjob))


def test_every_error_is_public_but_those_between_services() -> None:
    from redjob import errors

    internal = {"Fenced", "Grace", "Hold", "JournalForked", "SlotMoving"}
    named = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert named - internal <= set(redjob.__all__)


def test_the_type_checkers_see_what_is_there() -> None:
    source = (redjob.__file__ or "").rpartition("/")[0] + "/__init__.py"
    with open(source, encoding="utf-8") as file:  # noqa: PTH123 - one line
        text = file.read()
    head = text[: text.index("_HOMES")]
    for name in redjob.__all__:
        assert name in head


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        redjob.colour  # noqa: B018


def test_importing_redjob_loads_neither_redis_nor_msgspec() -> None:
    code = (
        "import sys, redjob; from redjob import InvalidArgument; "
        "print([m for m in ('redis', 'msgspec', 'asyncio', 'importlib.metadata') if m in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
