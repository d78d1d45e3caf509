"""Many threads that share a sync client: each call has a connection of its own, and few are kept."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from redjob.calls.owner_reads import server_time
from redjob.keys import PartitionKeys
from redjob.store.settings import settings_from_url
from redjob.store.sync import SyncStore
from tests.support.connect import connect

if TYPE_CHECKING:
    from tests.support.servers import TestServer

THREADS = 60


@pytest.mark.server("valkey")
def test_connections_beyond_those_that_are_kept_are_closed(server: TestServer, ns: str) -> None:
    redis = connect(server.url)
    before = int(redis.info("clients")["connected_clients"])
    store = SyncStore(settings_from_url(server.url), ns)
    part = PartitionKeys(ns, 0, "p0.0")
    together = threading.Barrier(THREADS)
    # Held up, so that all calls are under way at once, each on its connection.
    redis.client_pause(300)

    def ask(_: int) -> float:
        together.wait(20)
        return store.query(server_time(part))

    with ThreadPoolExecutor(THREADS) as pool:
        times = list(pool.map(ask, range(THREADS)))
    assert len(times) == THREADS
    kept = int(redis.info("clients")["connected_clients"]) - before
    assert 1 <= kept <= 32
    store.close()
    redis.close()
