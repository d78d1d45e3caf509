"""What queues leave behind: entries of cancelled jobs while nobody takes, and tenants whose turn is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from redjob.calls import jobs, owner, sweep
from redjob.ids import new_token
from tests.flow.sweeping import QUEUE, Stage, staged
from tests.support.dump import Dumper
from tests.support.invariants import violations

if TYPE_CHECKING:
    from tests.support.servers import TestServer

pytestmark = [pytest.mark.anyio, pytest.mark.server("valkey", "redis", "cluster")]


def depth(stage: Stage) -> tuple[int, int]:
    """The depth of the queue as it is counted, and as it is."""
    q = stage.part.queue(QUEUE)
    counted: Any = stage.redis.hget(q.flow, "depth")
    length: Any = stage.redis.xlen(q.stream)
    return int(counted), length


def tenants(stage: Stage) -> set[str]:
    """Whom the flow of the queue remembers."""
    fields: Any = stage.redis.hkeys(stage.part.queue(QUEUE).flow)
    return {name.decode() for name in fields if name.startswith(b"t:")}


async def wait_in_ready(stage: Stage, count: int, tenant: str) -> list[str]:
    """Enqueue jobs of a tenant that find the queue full."""
    made = await stage.enqueue(count, in_ms=60_000)
    for job in made:  # accepted anew as the tenant's, and now
        stage.redis.delete(stage.part.job(job.id))
        stage.redis.zrem(stage.part.queue(QUEUE).due, job.id)
        record = {**msgspec.json.decode(job.doc), "tenant": tenant}
        new = jobs.NewJob(job.id, 0, msgspec.json.encode(record))
        call = jobs.enqueue(stage.part, QUEUE, tenant, 5, [new], new_token())
        assert (await stage.store.call(call)).codes == "R"
    return [job.id for job in made]


async def test_entries_of_cancelled_jobs_go_from_a_paused_queue(
    server: TestServer, ns: str
) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake(never_begun_s=60)
        made = await stage.enqueue(100)
        await stage.enqueue(3, queue="another")
        cancelled = [*made[:40], made[-1]]
        for job in cancelled:
            assert await stage.cancel(job) == "K"
        assert (await node.scan()).settled == 0, "take will settle them"
        assert depth(stage) == (100, 100)
        stage.redis.hset(stage.part.queue(QUEUE).flow, "paused", "1")
        swept = await node.scan()
        assert (swept.settled, swept.recounted) == (41, 0)
        assert depth(stage) == (59, 59)
        assert violations(Dumper(stage.redis, stage.part)()) == []
        stage.redis.hdel(stage.part.queue(QUEUE).flow, "paused")
        assert set(await stage.start(100)) == {job.id for job in made} - {j.id for j in cancelled}


async def test_a_paused_queue_without_tombstones_keeps_every_entry(
    server: TestServer, ns: str
) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake(never_begun_s=60)
        made = await stage.enqueue(70)
        await stage.enqueue(1, queue="another")
        (gone,) = await stage.enqueue(1, queue="another")
        await stage.cancel(gone)  # a tombstone elsewhere, so that this queue is looked through too
        stage.redis.hset(stage.part.queue(QUEUE).flow, "paused", "1")
        before = Dumper(stage.redis, stage.part)()
        await node.scan()
        after = Dumper(stage.redis, stage.part)()
        assert {name for name, value in before.items() if after.get(name) != value} <= {
            "meta/seen_ms"
        }
        assert depth(stage) == (len(made), len(made))


async def test_a_tenant_is_forgotten_when_virtual_time_has_reached_its_last_job(
    server: TestServer, ns: str
) -> None:
    async with staged(server.url, ns, depth_limit="1") as stage:
        node = await stage.awake(batch=2, never_begun_s=60)
        await stage.enqueue()
        first = [await wait_in_ready(stage, 1, f"t{number}") for number in range(9)]
        (_, last) = await wait_in_ready(stage, 2, "busy")
        assert (await node.scan()).forgotten == 0
        assert len(tenants(stage)) == 10
        stage.redis.hset(stage.part.queue(QUEUE).flow, "limit", "none")
        ids = [job_id for (job_id,) in first]
        await stage.store.call(owner.release(stage.part, QUEUE, ids, tag=new_token()))
        assert (await node.scan()).forgotten == 9
        assert tenants(stage) == {"t:busy"}
        await stage.store.call(owner.release(stage.part, QUEUE, [last], tag=new_token()))
        call = sweep.forget(stage.part, QUEUE, ["t:busy", "t:nobody"])
        assert (await stage.store.call(call)).dropped == 1
        assert tenants(stage) == set()


async def test_a_tenant_that_came_back_meanwhile_keeps_its_place_in_line(
    server: TestServer, ns: str
) -> None:
    async with staged(server.url, ns) as stage:
        flow = stage.part.queue(QUEUE).flow
        stage.redis.hset(flow, mapping={"V": 5000, "t:back": 6000, "t:over": 5000})
        call = sweep.forget(stage.part, QUEUE, ["t:back", "t:over"])
        assert (await stage.store.call(call)).dropped == 1
        assert tenants(stage) == {"t:back"}
