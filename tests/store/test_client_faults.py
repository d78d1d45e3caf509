"""The clients when replies, connections, servers or processes go missing: one job, or a clear error."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from redjob import (
    AsyncClient,
    Client,
    InvalidArgument,
    JobFailed,
    JobSpec,
    JobState,
    Redjob,
    ResultTimeout,
    StoreFull,
    StoreUnavailable,
)
from redjob.store.routes import HOME
from redjob.store.settings import settings_from_url
from tests.support.opened import Opened
from tests.support.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import OwnServerFactory

pytestmark = pytest.mark.anyio


@pytest.fixture
def proxy(opened: Opened) -> Iterator[Proxy]:
    port = urlsplit(opened.url).port
    assert port is not None
    with Proxy(port) as proxy:
        yield proxy


@pytest.fixture
def client(opened: Opened, proxy: Proxy) -> Iterator[Client]:
    with Client(proxy.url, namespace=opened.namespace, deadline_s=10) as client:
        client.enqueue_in(3600, "warm-up")  # the script is known, the clock is read
        yield client


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


# a lost reply


def test_an_enqueue_whose_reply_is_lost_is_repeated_and_is_one_job(
    client: Client, opened: Opened, proxy: Proxy
) -> None:
    proxy.drop_next_reply(to=b"EVALSHA")
    job = client.enqueue("t", {"a": 1}, queue="q")
    assert proxy.dropped.is_set()
    assert job.created
    assert opened.entries("q") == 1
    assert sorted(record.task for record in opened.records().values()) == ["t", "warm-up"]


def test_a_keyed_enqueue_whose_reply_is_lost_knows_its_own_work(
    client: Client, opened: Opened, proxy: Proxy
) -> None:
    proxy.drop_next_reply(to=b"EVALSHA")
    job = client.enqueue("t", queue="q", idempotency_key="k")
    assert proxy.dropped.is_set()
    assert job.created
    assert opened.entries("q") == 1
    proxy.drop_next_reply(to=b"EVALSHA")
    again = client.enqueue("t", queue="q", idempotency_key="k")
    assert (again.id, again.created) == (job.id, False)
    assert opened.entries("q") == 1


def test_a_job_that_ends_before_its_enqueue_is_repeated_runs_once(
    client: Client, opened: Opened, proxy: Proxy
) -> None:
    store: Any = vars(client)["_store"]
    send = store._send

    def complete_first(call: Any) -> Any:
        if call.repeated:
            job_id = call.keys[10][-36:]
            opened.complete(job_id, "q")
        return send(call)

    store._send = complete_first
    proxy.drop_next_reply(to=b"EVALSHA")
    job = client.enqueue("t", queue="q")
    assert job.created
    assert job.state() is JobState.COMPLETED
    assert opened.entries("q") == 0


def test_batches_whose_replies_are_lost_are_repeated_and_are_each_job_once(
    client: Client, opened: Opened, proxy: Proxy
) -> None:
    specs = [JobSpec("t", {"n": n}, queue="q") for n in range(1500)]
    specs += [JobSpec("t", {"n": n}, queue="q", idempotency_key=f"k{n}") for n in range(50)]
    proxy.drop_next_reply(to=b"EVALSHA")
    results = client.enqueue_many(specs)
    assert proxy.dropped.is_set()
    assert all(result.job and result.job.created for result in results)
    assert opened.entries("q") == 1550
    assert len(opened.records()) == 1551


def test_changes_whose_replies_are_lost_are_made_once(
    client: Client, opened: Opened, proxy: Proxy
) -> None:
    job = client.enqueue_in(3600, "t")
    before = sum(opened.seqs())
    proxy.drop_next_reply(to=b"EVALSHA")
    job.cancel()
    proxy.drop_next_reply(to=b"EVALSHA")
    job.cancel()
    assert sum(opened.seqs()) == before + 1


async def test_an_async_enqueue_whose_reply_is_lost_is_one_job(
    opened: Opened, proxy: Proxy
) -> None:
    async with AsyncClient(proxy.url, namespace=opened.namespace, deadline_s=10) as client:
        await client.enqueue("t")
        for key in (None, "k"):
            proxy.drop_next_reply(to=b"EVALSHA")
            job = await client.enqueue("t", queue="q", idempotency_key=key)
            assert proxy.dropped.is_set()
            assert job.created
        assert opened.entries("q") == 2


def test_broken_connections_are_replaced(client: Client, opened: Opened, proxy: Proxy) -> None:
    for _ in range(20):
        proxy.reset_all()
        assert client.enqueue("t", queue="q").created
    assert opened.entries("q") == 20


def test_a_result_is_waited_for_across_broken_connections(
    client: Client, opened: Opened, proxy: Proxy
) -> None:
    job = client.enqueue("t", queue="q")
    stop = threading.Event()

    def trouble() -> None:
        for _ in range(5):
            stop.wait(0.1)
            proxy.reset_all()
        opened.complete(job.id, "q", b"7")

    thread = threading.Thread(target=trouble)
    thread.start()
    try:
        assert job.result(20) == 7
    finally:
        thread.join()


# a server that is silent, down, full or back


def test_a_silent_server_ends_in_an_unknown_outcome_that_names_the_job(
    opened: Opened, proxy: Proxy
) -> None:
    settings = settings_from_url(proxy.url, deadline_s=0.5)
    quick = type(settings)(settings.kind, settings.options, settings.shown, 0.2, 0.5)
    with Client(quick, namespace=opened.namespace) as client:
        client.enqueue("warm-up")
        proxy.pause()
        started = time.monotonic()
        with pytest.raises(StoreUnavailable) as caught:
            client.enqueue("t", queue="q")
        assert time.monotonic() - started < 3
        assert caught.value.outcome == "unknown"
        assert caught.value.job_id is not None
        assert caught.value.job_id in str(caught.value)
        proxy.resume()


@pytest.mark.parametrize("when", ["first call", "later call"])
def test_a_server_that_is_down_is_tried_to_the_deadline_and_told(
    own_server: OwnServerFactory, ns: str, when: str
) -> None:
    server = own_server()
    with (
        Opened(server.url, ns) as opened,
        Client(server.url, namespace=ns, deadline_s=1.0) as client,
    ):
        if when == "later call":
            client.enqueue("t")
        port = urlsplit(opened.url).port
        server.kill()
        started = time.monotonic()
        with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{port}") as caught:
            client.enqueue("t")
        assert 0.9 <= time.monotonic() - started < 5
        assert caught.value.outcome in {"refused", "unknown"}
        with pytest.raises(StoreUnavailable):
            client.info("01a22a3b-47f3-794c-8bd1-9640c3b23582")
        server.start()  # for Opened to clean up


def test_a_call_waits_for_a_server_that_comes_back(own_server: OwnServerFactory, ns: str) -> None:
    server = own_server()
    with Opened(server.url, ns) as opened, Client(server.url, namespace=ns) as client:
        client.enqueue("t", queue="q")
        server.kill()
        starter = threading.Timer(1.0, server.start)
        starter.start()
        job = client.enqueue("t", queue="q")
        back_at = time.monotonic()
        starter.join()
        assert job.created
        assert time.monotonic() - back_at < 5
        assert opened.entries("q") == 2


async def test_an_async_client_tells_of_a_server_that_is_down(ns: str) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    async with AsyncClient(url, namespace=ns, deadline_s=0.3) as client:
        with pytest.raises(StoreUnavailable) as caught:
            await client.enqueue("t")
        assert caught.value.outcome == "refused"


def test_a_server_that_is_silent_holds_up_a_call_no_longer_than_its_deadline_allows(
    opened: Opened, proxy: Proxy
) -> None:
    with Client(proxy.url, namespace=opened.namespace, deadline_s=0.5) as client:
        client.enqueue("t")
        proxy.pause()
        started = time.monotonic()
        with pytest.raises(StoreUnavailable) as caught:
            client.enqueue("t")
        assert time.monotonic() - started < 3
        assert caught.value.outcome == "unknown"
        proxy.resume()


def test_a_loop_that_has_ended_leaves_no_client_behind(opened: Opened) -> None:
    app = Redjob(opened.url, namespace=opened.namespace)

    @app.task(queue="q")
    def task() -> None:
        pass

    async def enqueue() -> None:
        await task.aenqueue()

    for _ in range(5):
        asyncio.run(enqueue())
    assert len(vars(app)["_async_clients"]) == 1
    asyncio.run(app.aclose())


def test_a_wait_for_a_result_ends_although_the_server_is_down(
    own_server: OwnServerFactory, ns: str
) -> None:
    server = own_server()
    with Opened(server.url, ns), Client(server.url, namespace=ns) as client:
        job = client.enqueue("t")
        server.kill()
        started = time.monotonic()
        with pytest.raises((StoreUnavailable, ResultTimeout)):
            job.result(1.0)
        assert time.monotonic() - started < 5
        server.start()


def test_many_idle_connections_do_not_slow_down_the_first_call_after_a_restart(
    own_server: OwnServerFactory, ns: str
) -> None:
    server = own_server()
    with Opened(server.url, ns), Client(server.url, namespace=ns) as client:
        _from_threads(client, threads=20, jobs=2)
        server.kill()
        server.start()
        started = time.monotonic()
        client.enqueue("t")
        assert time.monotonic() - started < 2


async def test_an_async_client_does_not_trip_over_each_idle_connection_after_a_restart(
    own_server: OwnServerFactory, ns: str
) -> None:
    server = own_server()
    with Opened(server.url, ns):
        async with AsyncClient(server.url, namespace=ns) as client:
            await asyncio.gather(*(client.enqueue("t") for _ in range(100)))
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            started = time.monotonic()
            await client.enqueue("t")
            assert time.monotonic() - started < 2


def test_a_full_server_refuses_new_jobs_and_says_so(own_server: OwnServerFactory, ns: str) -> None:
    server = own_server()
    with Opened(server.url, ns) as opened, Client(server.url, namespace=ns) as client:
        job = client.enqueue_in(3600, "t", {"a": 1})
        opened.redis.config_set("maxmemory", 1)
        before = opened.records()
        with pytest.raises(StoreFull, match="raise maxmemory"):
            client.enqueue("t")
        results = client.enqueue_many([JobSpec("t"), JobSpec("t")])
        assert [type(result.error) for result in results] == [StoreFull, StoreFull]
        assert job.state() is JobState.SCHEDULED
        canceller = threading.Timer(0.3, job.cancel)
        canceller.start()
        with pytest.raises(JobFailed, match="CANCELLED"):  # ends are heard of on a full server too
            job.result(10)
        canceller.join()
        opened.redis.config_set("maxmemory", 0)
        assert opened.records().keys() == before.keys() - {job.id}


def test_a_flushed_script_cache_is_not_noticed(own_server: OwnServerFactory, ns: str) -> None:
    server = own_server()
    with Opened(server.url, ns) as opened, Client(server.url, namespace=ns) as client:
        for _ in range(3):
            assert client.enqueue("t", queue="q").created
            opened.redis.script_flush()
        results = client.enqueue_many([JobSpec("t", queue="q") for _ in range(1500)])
        assert not [result.error for result in results if result.error]
        assert opened.entries("q") == 1503


# threads and forks


def _from_threads(client: Client, *, threads: int, jobs: int) -> list[tuple[int, int, str]]:
    done: list[tuple[int, int, str]] = []
    together = threading.Barrier(threads)

    def run(thread: int) -> None:
        together.wait()
        for number in range(jobs):
            job = client.enqueue("t", {"thread": thread, "number": number}, queue="q")
            done.append((thread, number, job.id))

    running = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return done


def test_twenty_threads_share_a_client_and_each_gets_its_own_replies(opened: Opened) -> None:
    with Client(opened.url, namespace=opened.namespace) as client:
        done = _from_threads(client, threads=20, jobs=200)
    records = opened.records()
    assert len(done) == len(records) == opened.entries("q") == 4000
    for thread, number, job_id in done:
        assert bytes(records[job_id].payload) == b'{"thread":%d,"number":%d}' % (thread, number)


def _in_child(client: Client, number: int) -> None:
    for count in range(20):
        client.enqueue("t", {"child": number, "count": count}, queue="q")
    client.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forked_children_use_the_client_and_leave_the_parents_connections_alone(
    opened: Opened,
) -> None:
    context: Any = multiprocessing.get_context("fork")
    with Client(opened.url, namespace=opened.namespace) as client:
        client.enqueue("t", queue="q")
        store: Any = vars(client)["_store"]
        idle: Any = store._nodes.pool(HOME).idle
        link = idle[0]
        children = [context.Process(target=_in_child, args=(client, n)) for n in range(5)]
        for child in children:
            child.start()
        for _ in range(20):
            client.enqueue("t", queue="q")
        for child in children:
            child.join(30)
            assert child.exitcode == 0
        client.enqueue("t", queue="q")
        assert list(idle) == [link]
    assert opened.entries("q") == len(opened.records()) == 1 + 5 * 20 + 20 + 1


async def test_cancelled_async_calls_never_give_a_reply_to_another(opened: Opened) -> None:
    async with AsyncClient(opened.url, namespace=opened.namespace) as client:
        jobs = [await client.enqueue("t", {"n": n}) for n in range(50)]
        for turn in range(300):
            doomed = asyncio.create_task(client.info(jobs[turn % 50].id))
            for _ in range(turn % 7):
                await asyncio.sleep(0)
            doomed.cancel()
            expected = (turn * 7) % 50
            info = await client.info(jobs[expected].id)
            assert (info.id, info.payload) == (jobs[expected].id, {"n": expected})


def test_bad_input_is_refused_without_a_server(ns: str) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    with (
        Client(url, namespace=ns, deadline_s=30) as client,
        pytest.raises(InvalidArgument, match="delay: is negative"),
    ):
        client.enqueue_in(-1, "t")
