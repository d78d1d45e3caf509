"""A partition of its own for each test of a script."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.functions import FORMS, scripts_of
from tests.support.opened import Opened
from tests.support.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.functions import Form
    from tests.support.servers import TestServer


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes `world` in both forms of the scripts, unless it names one."""
    named = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "form" in metafunc.fixturenames and "form" not in named:
        metafunc.parametrize("form", FORMS, scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out functions on all kinds of server but one: they are the same texts, called another way."""
    formed = [
        (item, item.callspec.params)
        for item in items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
    ]
    kinds = {params.get("server") for _, params in formed}
    one = "redis" if "redis" in kinds else "valkey"
    out = {
        item
        for item, params in formed
        if params.get("form") == "functions" and params.get("server") != one
    }
    if out:
        config.hook.pytest_deselected(items=list(out))
        items[:] = [item for item in items if item not in out]


@pytest.fixture
def world(server: TestServer, ns: str, form: Form) -> Iterator[World]:
    """An opened partition, without a depth limit; emptied and removed at the end."""
    with World(server.url, ns, scripts=scripts_of(form, server.url)) as world:
        yield world


@pytest.fixture
def opened(server: TestServer, ns: str) -> Iterator[Opened]:
    """An opened namespace of 16 partitions, with the test in the place of its workers."""
    with Opened(server.url, ns) as opened:
        yield opened
