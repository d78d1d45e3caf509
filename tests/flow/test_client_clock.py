"""Delays hold when the client's clock is set while it is connected: both stores go by the server's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from redjob.clock import SystemClock
from redjob.store.aio import AsyncStore
from redjob.store.namespace import namespace_query
from redjob.store.settings import settings_from_url
from redjob.store.sync import SyncStore

if TYPE_CHECKING:
    from tests.support.servers import TestServer

pytestmark = [pytest.mark.anyio, pytest.mark.server("valkey", "redis", "cluster")]
STEP_MS = 3_600_000


class SteppedClock(SystemClock):
    """The machine's clock, which somebody sets."""

    wall_step_ms = 0
    passed_s = 0.0

    def wall_ms(self) -> int:
        """Wall ms as they were set."""
        return super().wall_ms() + self.wall_step_ms

    def monotonic(self) -> float:
        """Seconds, with those that the test lets pass."""
        return super().monotonic() + self.passed_s


def true_ms() -> int:
    """The server's time: it runs on this machine."""
    return SystemClock().wall_ms()


@pytest.mark.parametrize("step_ms", [-STEP_MS, STEP_MS])
def test_the_blocking_store_keeps_the_servers_time(
    server: TestServer, ns: str, step_ms: int
) -> None:
    clock = SteppedClock()
    store = SyncStore(settings_from_url(server.url), ns, clock=clock)
    store.query(namespace_query(ns))
    clock.wall_step_ms = step_ms
    assert store.now_ms() == pytest.approx(true_ms(), abs=200)
    clock.passed_s = 61.0
    assert store.now_ms() == pytest.approx(true_ms() + 61_000, abs=200)
    store.query(namespace_query(ns))  # a call that is made anyway
    assert store.now_ms() == pytest.approx(true_ms(), abs=200)
    store.close()


@pytest.mark.parametrize("step_ms", [-STEP_MS, STEP_MS])
async def test_the_asyncio_store_keeps_the_servers_time(
    server: TestServer, ns: str, step_ms: int
) -> None:
    clock = SteppedClock()
    store = AsyncStore(settings_from_url(server.url), ns, clock=clock)
    await store.query(namespace_query(ns))
    clock.wall_step_ms = step_ms
    assert store.now_ms() == pytest.approx(true_ms(), abs=200)
    clock.passed_s = 61.0
    assert store.now_ms() == pytest.approx(true_ms() + 61_000, abs=200)
    await store.query(namespace_query(ns))
    assert store.now_ms() == pytest.approx(true_ms(), abs=200)
    await store.aclose()
