"""What scenarios share: a scene on a server of its own."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from tests.support.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.servers import OwnServerFactory


class SceneFactory(Protocol):
    """Makes the scene of one test."""

    def __call__(self, url: str | None = None, **settings: Any) -> Scene:
        """Make a scene on this server, or on one of its own; nothing is started."""
        ...


@pytest.fixture
def scene(own_server: OwnServerFactory, tmp_path: Path) -> Iterator[SceneFactory]:
    """A scene, whose processes end with the test."""
    with ExitStack() as left:

        def make(url: str | None = None, **settings: Any) -> Scene:
            return left.enter_context(Scene(url or own_server().url, tmp_path, **settings))

        yield make
