"""Jobs whose record is gone: told once, counted once, and in nobody's way; or restored from their entry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from redjob.calls import jobs, sweep, work
from redjob.codec import decode_entry
from redjob.errors import Hold
from redjob.ids import new_token
from tests.flow.commands import redjob
from tests.flow.sweeping import QUEUE, Made, Stage, staged, until
from tests.support.dump import Dumper
from tests.support.invariants import violations

if TYPE_CHECKING:
    from tests.support.servers import TestServer

pytestmark = [pytest.mark.anyio, pytest.mark.server("valkey", "redis", "cluster")]


@pytest.fixture(autouse=True)
def _info_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "redjob.sweeper")


def lost(stage: Stage) -> list[str]:
    """The ids in `lost`."""
    return [job_id.decode() for job_id in stage.redis.zrange(stage.part.lost, 0, -1)]


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The alarms, without their partition."""
    return [
        message.replace(" partition=0", "")
        for record in caplog.records
        if (message := record.getMessage()).startswith("lost ")
    ]


def journaled(stage: Stage) -> list[tuple[str, list[str]]]:
    """Op and lines of what the script wrote."""
    rows: Any = stage.redis.xrange(stage.part.journal)
    entries = [decode_entry(entry, fields) for entry, fields in rows]
    return [(e.op, e.block.decode().split("\n")) for e in entries if e.op == "lose"]


def sound(stage: Stage) -> bool:
    """Whether every place agrees with every other."""
    return violations(Dumper(stage.redis, stage.part)()) == []


async def test_a_running_job_without_a_record_is_lost_when_its_lease_is_over(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake()
        (job,) = await stage.enqueue()
        (other,) = await stage.enqueue()
        await stage.start(2)
        await stage.cancel(job)
        stage.redis.hset(stage.part.progress, job.id, "{}")
        stage.redis.delete(stage.part.job(job.id))
        swept = await until(node.tick, lambda swept: swept.lost and swept.reclaimed)
        assert (swept.lost, swept.reclaimed) == (1, 1)
        assert lost(stage) == [job.id]
        assert told(caplog) == [f"lost job={job.id} place=running cause=no_record"]
        assert journaled(stage) == [("lose", [f"{job.id} - L 1"])]
        assert (await stage.where(other)).due
        assert sound(stage)
        assert (await node.tick()).lost == 0
        assert stage.redis.exists(stage.part.runs, stage.part.running) == 0


async def test_a_worker_that_lives_finishes_its_job_without_a_record(
    server: TestServer, ns: str
) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake()
        (job,) = await stage.enqueue()
        await stage.start(lease_ms=60_000)
        stage.redis.delete(stage.part.job(job.id))
        call = sweep.lose(stage.part, [QUEUE], [job.id], tag=new_token())
        assert (await stage.store.call(call)).codes == "H"
        assert (await node.tick()).lost == (await node.scan()).lost == 0
        end = work.End(job.id, QUEUE, 1, "C", job.head, 0, b"{}")
        finish = work.finish(stage.part, "w1", [end], tag=new_token())
        assert (await stage.store.call(finish)).codes == "M"
        assert lost(stage) == []


async def test_a_dispatched_job_gets_its_record_back_from_its_entry(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake()
        await stage.enqueue(queue="another")
        (job,) = await stage.enqueue()
        stage.redis.delete(stage.part.job(job.id))
        await until(node.scan, lambda swept: swept.restored == 1)
        assert (await stage.where(job)).doc == job.doc
        assert f"record_restored job={job.id}" in caplog.text
        assert (lost(stage), told(caplog)) == ([], [])
        assert sound(stage)
        assert await stage.start() == [job.id]


async def test_a_dispatched_job_without_record_and_entry_is_lost(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake()
        gone, other = await stage.enqueue(2)
        entry = (await stage.where(gone)).entry
        stage.redis.xdel(stage.part.queue(QUEUE).stream, entry)
        stage.redis.delete(stage.part.job(gone.id))
        await until(node.scan, lambda swept: swept.lost == 1)
        await node.scan()
        assert lost(stage) == [gone.id]
        assert told(caplog) == [f"lost job={gone.id} place=dispatched cause=no_record"]
        assert sound(stage)
        assert await stage.start(5) == [other.id]


async def test_a_due_job_without_a_record_holds_up_no_other(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake()
        made = await stage.enqueue(3, in_ms=50)
        stage.redis.delete(stage.part.job(made[0].id))
        swept = await until(node.tick, lambda swept: swept.lost and swept.fired == 2)
        assert swept.lost == 1
        assert lost(stage) == [made[0].id]
        assert told(caplog) == [f"lost job={made[0].id} place=due cause=no_record"]
        assert sound(stage)


async def test_a_ready_job_without_a_record_is_lost(server: TestServer, ns: str) -> None:
    async with staged(server.url, ns, depth_limit="1") as stage:
        node = await stage.awake()
        made = await stage.enqueue(3)
        ready = [job for job in made if (await stage.where(job)).ready]
        stage.redis.delete(stage.part.job(ready[0].id))
        assert (await node.scan()).lost == 1
        assert lost(stage) == [ready[0].id]
        assert (await stage.where(ready[1])).ready
        assert sound(stage)


async def test_the_call_repeated_says_the_same_and_spares_what_has_a_record(
    server: TestServer, ns: str
) -> None:
    async with staged(server.url, ns) as stage:
        (gone,) = await stage.enqueue(in_ms=60_000)
        (there,) = await stage.enqueue(in_ms=60_000)
        nowhere = Made(gone.id[:-1] + "e", QUEUE, b"")
        stage.redis.delete(stage.part.job(gone.id))
        call = sweep.lose(stage.part, [QUEUE], [gone.id, there.id, nowhere.id], tag=new_token())
        assert (await stage.store.call(call)).codes == "LAA"
        before = Dumper(stage.redis, stage.part)()
        assert (await stage.store.call(call)).codes == "LAA"
        assert Dumper(stage.redis, stage.part)() == before


async def test_lost_jobs_are_counted_by_the_doctor_until_their_time_is_over(
    server: TestServer, ns: str
) -> None:
    place = ("--redis-url", server.url, "--namespace", ns)
    async with staged(server.url, ns) as stage:
        node = await stage.awake()
        made = await stage.enqueue(2, in_ms=50)
        stage.redis.delete(*(stage.part.job(job.id) for job in made))
        await until(node.tick, lambda swept: swept.lost == 2)
        (found,) = redjob("doctor", "--json", *place).objects
        (check,) = [check for check in found["checks"] if check["name"] == "lost"]
        assert check["status"] == "warn"
        assert check["detail"].startswith("2 job(s)")
        assert lost(stage)[-1] in check["detail"]
        await stage.sweeper(dead_keep_s=3600).scan()
        assert len(lost(stage)) == 2
        forgetful = stage.sweeper(dead_keep_s=0.01)
        await until(forgetful.scan, lambda _: not lost(stage))
        assert "no job has lost its record" in redjob("doctor", *place).out


async def test_a_job_that_was_lost_may_be_enqueued_anew(server: TestServer, ns: str) -> None:
    async with staged(server.url, ns) as stage:
        (job,) = await stage.enqueue(in_ms=60_000)
        stage.redis.delete(stage.part.job(job.id))
        call = sweep.lose(stage.part, [QUEUE], [job.id], tag=new_token())
        await stage.store.call(call)
        new = jobs.NewJob(job.id, 0, job.doc)
        enqueue = jobs.enqueue(stage.part, QUEUE, "default", 5, [new], new_token())
        assert (await stage.store.call(enqueue)).codes == "D"
        assert await stage.start() == [job.id]


async def test_nothing_is_given_up_before_an_owner_has_checked_a_restarted_server(
    server: TestServer, ns: str
) -> None:
    async with staged(server.url, ns) as stage:
        (job,) = await stage.enqueue(in_ms=60_000)
        stage.redis.delete(stage.part.job(job.id))
        stage.redis.hset(stage.part.meta, "run_id", "another")
        call = sweep.lose(stage.part, [QUEUE], [job.id], tag=new_token())
        with pytest.raises(Hold):
            await stage.store.call(call)
        await stage.own(2)
        assert (await stage.store.call(call)).codes == "L"
