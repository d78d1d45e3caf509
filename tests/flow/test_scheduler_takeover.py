"""Several schedulers: who owns what, and how soon another goes on when one ends, in whatever way."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from redjob.calls.owner import Fence, fence, trim
from redjob.errors import Fenced
from tests.flow.scheduling import QUEUE, Running, Scene, scheduling, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.flow.scheduling import Desk
    from tests.support.servers import TestServer

pytestmark = [pytest.mark.anyio, pytest.mark.server("valkey", "redis", "cluster")]
PARTITIONS = 16
ALL = frozenset(range(PARTITIONS))

NODE = """
import asyncio, logging, sys
from redjob.config import SchedulerConfig
from redjob.scheduler import SchedulerNode
from redjob.store.aio import AsyncStore
from redjob.store.settings import settings_from_url

async def main(url, ns, partitions):
    store = AsyncStore(settings_from_url(url), ns, partitions=int(partitions))
    node = SchedulerNode(store, SchedulerConfig())
    running = asyncio.create_task(node.run())
    await node.wait_ready()
    print(node.name, flush=True)
    await running

asyncio.run(main(*sys.argv[1:]))
"""


def open_in(running: Running) -> frozenset[int]:
    """The partitions that a node works on."""
    return running.node.partitions


@asynccontextmanager
async def other_process(url: str, ns: str) -> AsyncGenerator[tuple[int, str]]:
    """A node in a process of its own, ready; its pid and name."""
    command = [sys.executable, "-c", NODE, url, ns, str(PARTITIONS)]
    process = await asyncio.to_thread(subprocess.Popen, command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(20):
            name = (await asyncio.to_thread(process.stdout.readline)).decode().strip()
        yield process.pid, name
    finally:
        process.kill()
        await asyncio.to_thread(process.communicate)


def owned_by(desk: Desk, name: str, ns: str) -> frozenset[int]:
    """The partitions that most quorum keys say a node holds."""
    keys = list(desk.redis.scan_iter(f"{ns}:*:nodes"))
    votes = Counter(
        int(field[5:])
        for key in keys
        for field, value in desk.redis.hgetall(key).items()
        if field.startswith(b"part:") and value.split()[0].decode() == name
    )
    return frozenset(index for index, count in votes.items() if count > len(keys) // 2)


async def test_two_nodes_share_and_each_job_fires_once(server: TestServer, ns: str) -> None:
    scene = Scene(server.url, ns, PARTITIONS)
    try:
        first = await scene.start(ready=False)
        second = await scene.start(ready=False)
        await scene.is_ready(first)
        await scene.is_ready(second)
        await until(lambda: open_in(first) | open_in(second) == ALL)
        assert not open_in(first) & open_in(second)
        assert open_in(first)
        assert open_in(second)
        want = await scene.desk.enqueue(300, in_ms=300, every_ms=2)
        late = await scene.desk.all_fired(want)
        assert min(late.values()) >= 0
        await until(lambda: first.node.counters.fired + second.node.counters.fired == 300)
    finally:
        await scene.close()


async def test_a_joiner_gets_its_share_without_a_gap_or_a_double(
    server: TestServer, ns: str
) -> None:
    async with scheduling(server.url, ns, partitions=PARTITIONS) as (desk, first, scene):
        await asyncio.sleep(0.6)  # it is the older one now, by more than counts as together
        second = await scene.start(join_delay_ms=2000)
        assert open_in(second) == frozenset()
        want = await desk.enqueue(400, in_ms=500, every_ms=8)
        await until(lambda: open_in(second) and open_in(first) | open_in(second) == ALL)
        late = await desk.all_fired(want)
        assert min(late.values()) >= 0
        assert max(late.values()) < 1000
        assert second.node.counters.fired > 0


async def test_a_node_that_stops_in_good_order_is_followed_at_once(
    server: TestServer, ns: str
) -> None:
    scene = Scene(server.url, ns, PARTITIONS)
    try:
        first = await scene.start(ready=False)
        second = await scene.start(ready=False)
        await until(lambda: open_in(first) and open_in(first) | open_in(second) == ALL)
        await scene.desk.store.open()
        want = await scene.desk.enqueue(300, in_ms=200, every_ms=4)
        await asyncio.sleep(0.3)
        stopped = time.monotonic()
        await first.stop()
        await until(lambda: open_in(second) == ALL)
        assert time.monotonic() - stopped < 0.8
        await scene.desk.all_fired(want)
    finally:
        await scene.close()


async def test_an_owner_that_is_fenced_lets_go_and_asks_the_quorum_before_it_comes_back(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with scheduling(server.url, ns, partitions=1) as (desk, _, _):
        (before,) = desk.epochs()
        call = fence(
            desk.part, Fence(before + 5, "x"), incarnation="", depth_limit="none", grace_ms=0
        )
        await desk.store.call(call)
        await until(lambda: desk.epochs()[0] > before + 5)
        assert "partition_closed partition=0 cause=fenced" in caplog.text
        await desk.all_fired(await desk.enqueue(3, in_ms=50))
        old = trim(desk.part, Fence(before + 5, "x"), entry=(0, ""), before=0, keep_ms=0)
        with pytest.raises(Fenced):  # and the other one has no effect any more
            await desk.store.call(old)


@pytest.mark.solo
async def test_firing_goes_on_two_seconds_after_an_owner_was_killed(
    server: TestServer, ns: str
) -> None:
    """Both start together, so that each owns a share; the jobs are due all the time."""
    scene = Scene(server.url, ns, PARTITIONS)
    try:
        starting = asyncio.create_task(scene.start())
        async with other_process(server.url, ns) as (pid, name):
            here = await starting
            desk = scene.desk
            await until(lambda: owned_by(desk, name, ns), within_s=10)
            want = await desk.enqueue(2000, in_ms=300, every_ms=2)
            await asyncio.sleep(1)
            theirs = owned_by(desk, name, ns)
            assert theirs
            killed_ms = desk.store.now_ms()
            os.kill(pid, signal.SIGKILL)
            await until(lambda: open_in(here) == ALL)
            await desk.all_fired(want)
        assert _first_after(desk, theirs, want, killed_ms) < 2000
    finally:
        await scene.close()


def _first_after(
    desk: Desk, partitions: frozenset[int], want: dict[str, int], killed_ms: int
) -> int:
    """How many ms after the kill the last of these partitions fired its first job that was due then."""
    fired = desk.fired()
    first: dict[int, int] = {}
    for job_id, at_ms in want.items():
        index = desk.store.keys.of_job(job_id).index
        if index in partitions and at_ms > killed_ms:
            first[index] = min(first.get(index, fired[job_id]), fired[job_id])
    return max(first.values()) - killed_ms


@pytest.mark.solo
async def test_a_node_that_was_stopped_and_wakes_up_does_no_harm(
    server: TestServer, ns: str
) -> None:
    scene = Scene(server.url, ns, PARTITIONS)
    try:
        starting = asyncio.create_task(scene.start())
        async with other_process(server.url, ns) as (pid, name):
            here = await starting
            desk = scene.desk
            await until(lambda: owned_by(desk, name, ns), within_s=10)
            want = await desk.enqueue(1500, in_ms=200, every_ms=3)
            os.kill(pid, signal.SIGSTOP)
            await until(lambda: open_in(here) == ALL)
            await asyncio.sleep(0.5)
            os.kill(pid, signal.SIGCONT)
            await desk.all_fired(want)
            await until(lambda: owned_by(desk, name, ns) and open_in(here) != ALL)
            more = await desk.enqueue(200, in_ms=200, every_ms=2, queue="more")
            await desk.all_fired(more, queue="more")
            for part in desk.store.keys.parts:
                assert desk.journal_ends_as_meta_says(part)
    finally:
        await scene.close()


async def test_queues_of_a_dead_owner_with_ready_jobs_are_found_by_the_next(
    server: TestServer, ns: str
) -> None:
    async with scheduling(server.url, ns, partitions=1, depth_limit="1") as (desk, first, scene):
        await desk.enqueue(4)
        await first.stop()
        await desk.take(desk.part, 1)
        await scene.start(depth_limit="10")
        await until(lambda: len(desk.entries()) == 3)
        assert desk.redis.zcard(desk.part.queue(QUEUE).ready) == 0
