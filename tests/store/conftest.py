"""A partition of its own for each test of a script."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.opened import Opened
from tests.support.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import TestServer


@pytest.fixture
def world(server: TestServer, ns: str) -> Iterator[World]:
    """An opened partition, without a depth limit; emptied and removed at the end."""
    with World(server.url, ns) as world:
        yield world


@pytest.fixture
def opened(server: TestServer, ns: str) -> Iterator[Opened]:
    """An opened namespace of 16 partitions, with the test in the place of its workers."""
    with Opened(server.url, ns) as opened:
        yield opened
