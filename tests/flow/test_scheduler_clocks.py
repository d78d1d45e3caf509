"""A primary whose clock is far from the others': its partitions are held, and it is said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.flow.scheduling import scheduling, until

if TYPE_CHECKING:
    from tests.support.servers import TestServer

pytestmark = pytest.mark.anyio


@pytest.mark.server("cluster")
async def test_partitions_of_a_primary_with_a_wrong_clock_are_held_until_it_is_right(
    server: TestServer, ns: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with scheduling(server.url, ns, partitions=12) as (_, running, _):
        parts = running.store.keys.parts
        wrong = running.store.server_of(parts[0])
        there = {part.index for part in parts if running.store.server_of(part) == wrong}
        clocks: Any = running.store.clocks_ms

        def one_is_wrong() -> dict[Any, int]:
            return {at: ms + 5_500 * (at == wrong) for at, ms in clocks().items()}

        monkeypatch.setattr(running.store, "clocks_ms", one_is_wrong)
        await until(lambda: running.node.partitions == frozenset(range(12)) - there)
        assert f"clock_wrong server={wrong} cause=off_by_ms=5500" in caplog.text
        monkeypatch.undo()
        await until(lambda: running.node.partitions == frozenset(range(12)))
