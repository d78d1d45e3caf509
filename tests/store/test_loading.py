"""A server that reads its data in for a while: calls wait for it, and nothing takes it for empty."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from redis import Redis
from redis import exceptions as rx
from redis.backoff import NoBackoff
from redis.retry import Retry

from redjob import AsyncClient, Client, JobState
from redjob.errors import StoreUnavailable
from tests.flow.working import until
from tests.support.opened import Opened

if TYPE_CHECKING:
    from tests.support.servers import OwnServerFactory

_KEYS = 400
_US_A_KEY = 5000  # of an option that exists for such tests: about 2 s in all


@pytest.mark.slow
async def test_calls_wait_for_a_server_that_is_loading(
    own_server: OwnServerFactory, ns: str
) -> None:
    slowly = ("--key-load-delay", str(_US_A_KEY), "--loading-process-events-interval-bytes", "1024")
    server = own_server(extra_args=slowly)
    with Opened(server.url, ns) as opened, Client(server.url, namespace=ns) as client:
        job = client.enqueue_in(3600, "t")
        opened.redis.mset({f"{ns}:filler:{number}": "x" for number in range(_KEYS)})
        opened.redis.bgrewriteaof()  # what is loaded slowly is a base file
        await until(lambda: not opened.redis.info("persistence")["aof_rewrite_in_progress"])
        server.kill()
        starting = asyncio.create_task(asyncio.to_thread(server.start))
        await until(lambda: is_loading(server.url))
        with (
            Client(server.url, namespace=ns, deadline_s=0.2) as hasty,
            pytest.raises(StoreUnavailable) as caught,
        ):
            hasty.enqueue("t")
        assert caught.value.outcome == "refused"
        async with AsyncClient(server.url, namespace=ns) as other:
            assert (await other.enqueue("t")).created
        assert client.state(job.id) is JobState.SCHEDULED
        await starting


def is_loading(url: str) -> bool:
    with Redis.from_url(url, retry=Retry(NoBackoff(), 0)) as redis:
        try:
            redis.get("any")
        except rx.BusyLoadingError:
            return True
        except rx.ConnectionError:
            pass
    return False
