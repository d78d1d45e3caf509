"""Sentinels and TLS: failovers are followed, and what is wrongly set up is told at once."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from redjob.errors import RedjobError, ServerUnsuitable, StoreUnavailable
from redjob.store.aio import AsyncStore
from redjob.store.facts import facts_query
from redjob.store.settings import settings_from_url
from redjob.store.sync import SyncStore
from tests.support.opened import Opened
from tests.support.routed import QUEUE, new_job
from tests.support.tls import TlsProxy

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.servers import OwnSentinelFactory, OwnServerFactory

pytestmark = pytest.mark.anyio


async def refusals(url: str, *, deadline_s: float = 5.0) -> list[RedjobError]:
    """What a store of each kind says of a URL."""
    settings = settings_from_url(url, deadline_s=deadline_s)
    sync, store = SyncStore(settings), AsyncStore(settings)
    with pytest.raises(RedjobError) as blocking:
        await asyncio.to_thread(sync.query, facts_query())
    with pytest.raises(RedjobError) as waiting:
        await store.query(facts_query())
    sync.close()
    await store.aclose()
    return [blocking.value, waiting.value]


@pytest.mark.parametrize("how", ["handed over", "killed"])
async def test_calls_follow_the_sentinels_to_a_new_primary(
    own_sentinel: OwnSentinelFactory, ns: str, how: str
) -> None:
    group = own_sentinel()
    settings = settings_from_url(group.url, deadline_s=25)
    sync, store = SyncStore(settings, ns), AsyncStore(settings, ns)
    first = group.primary()
    assert first is not None
    opened = Opened(first.url, ns, partitions=2)
    part = opened.keys.parts[0]
    assert (await store.call(new_job(part, 1))).codes == "D"
    assert sync.call(new_job(part, 1)).codes == "D"
    assert store.is_one_server
    assert store.server_changes == 0
    assert opened.redis.wait(1, 5000) == 1
    if how == "killed":
        await asyncio.to_thread(first.kill)
    else:
        await asyncio.to_thread(group.fail_over)
        # Until the old primary hears of it, it takes what will be lost: the Sentinels' own weakness.
        await asyncio.to_thread(group.wait_healthy)
    both = await asyncio.gather(
        store.call(new_job(part, 1)), asyncio.to_thread(sync.call, new_job(part, 1))
    )
    assert [reply.codes for reply in both] == ["D", "D"]
    assert store.server_changes == 1
    bell = part.queue(QUEUE).bell
    bells = store.dedicated(part)
    assert await store.block(bells, ("BLPOP", bell, 1), 1.0) == [bell.encode(), b"1"]
    bells.close()
    sync.close()
    await store.aclose()
    opened.redis.close()
    opened.store.close()


async def test_a_service_that_no_sentinel_watches_is_told(own_sentinel: OwnSentinelFactory) -> None:
    url = own_sentinel().url.replace("/redjob/", "/other/")
    for told in await refusals(url, deadline_s=0.3):
        assert isinstance(told, StoreUnavailable)
        assert "it watches no 'other'" in str(told)


@pytest.mark.parametrize("kind", ["cluster", "sentinel"])
async def test_a_single_server_under_another_url_is_told_at_once(
    own_server: OwnServerFactory, kind: str
) -> None:
    url = own_server().url.replace("redis://", f"redis+{kind}://").removesuffix("/0")
    started = time.monotonic()
    for told in await refusals(url if kind == "cluster" else f"{url}/service"):
        assert isinstance(told, ServerUnsuitable)
        assert f"does not answer as a {kind}" in str(told)
    assert time.monotonic() - started < 2


async def test_over_tls_everything_is_as_ever(
    own_server: OwnServerFactory, tmp_path: Path, ns: str
) -> None:
    server = own_server()
    with TlsProxy(server.port, tmp_path) as proxy, Opened(proxy.url, ns, partitions=2) as opened:
        store = AsyncStore(settings_from_url(proxy.url), ns)
        part = opened.keys.parts[0]
        assert (await store.call(new_job(part, 1))).codes == "D"
        assert opened.store.call(new_job(part, 1)).codes == "D"
        bell = part.queue(QUEUE).bell
        bells = store.dedicated(part)
        assert await store.block(bells, ("BLPOP", bell, 1), 1.0) == [bell.encode(), b"1"]
        bells.close()
        await store.aclose()


@pytest.mark.parametrize("topology", ["", "+cluster"])
@pytest.mark.parametrize("fault", ["nobody we know", "another name"])
async def test_a_certificate_that_is_not_to_be_trusted_is_told_at_once(
    own_server: OwnServerFactory, tmp_path: Path, fault: str, topology: str
) -> None:
    hostname = "other.example" if fault == "another name" else "127.0.0.1"
    with TlsProxy(own_server().port, tmp_path, hostname=hostname) as proxy:
        started = time.monotonic()
        url = proxy.url if fault == "another name" else proxy.plain_url
        url = url.replace("rediss://", f"rediss{topology}://")
        for told in await refusals(url):
            assert isinstance(told, ServerUnsuitable)
            assert "certificate that is not trusted" in str(told)
            assert "ssl_ca_certs" in str(told)
        assert time.monotonic() - started < 2
