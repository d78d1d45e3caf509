"""The invariant scan on real servers: damage is mended, and what moves meanwhile is left alone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from redjob.calls import sweep, work
from redjob.codec import decode_tombstone, is_stub
from redjob.ids import new_token
from redjob.model import JobState, Options
from tests.flow.sweeping import QUEUE, Made, Stage, extra_starts, staged, until

if TYPE_CHECKING:
    from tests.support.servers import TestServer

pytestmark = [pytest.mark.anyio, pytest.mark.server("valkey", "redis", "cluster")]


@pytest.fixture(autouse=True)
def _info_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "redjob.sweeper")


def read_as_foreign_consumer(
    stage: Stage, count: int, consumer: str = "theirs"
) -> list[tuple[str, str]]:
    """Read as a program in another language does, which then dies; entries with their job ids."""
    stream = stage.part.queue(QUEUE).stream
    found: Any = stage.redis.xreadgroup("workers", consumer, {stream: ">"}, count=count)
    return [(entry.decode(), fields.get(b"id", b"").decode()) for entry, fields in found[0][1]]


async def begin(stage: Stage, entries: list[tuple[str, str]]) -> str:
    """Begin entries as that program would have; the letters of the reply."""
    call = work.begin(stage.part, QUEUE, "theirs", entries, lease_ms=60_000, tag=new_token())
    return (await stage.store.call(call)).codes


async def die(stage: Stage, job: Made) -> None:
    """Run a job into its death."""
    await stage.start(lease_ms=60_000)
    end = work.End(job.id, QUEUE, 1, "F", job.head, 0, b'{"failures":5,"dead":"failure"}\n{}')
    await stage.store.call(work.finish(stage.part, "w1", [end], tag=new_token()))
    assert (await stage.where(job)).dead


async def test_a_running_job_without_a_lease_is_found_and_ended(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake()
        (job,) = await stage.enqueue()
        await stage.start(lease_ms=60_000)
        stage.redis.delete(stage.part.running)
        assert (await node.scan()).reclaimed == 0
        assert (await node.scan()).reclaimed == 1
        assert (await stage.where(job)).due
        assert extra_starts(caplog) == [(job.id, 1, "lease_expired")]


async def test_a_live_worker_has_time_to_put_a_lost_lease_back(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake()
        (job,) = await stage.enqueue()
        await stage.start(lease_ms=60_000)
        stage.redis.delete(stage.part.running)
        await node.scan()
        beat = [work.Beat(job.id, QUEUE, 1, job.head)]
        call = work.heartbeat(stage.part, "w1", beat, lease_ms=60_000, tag=new_token())
        await stage.store.call(call)
        await node.scan()
        assert (await stage.where(job)).run == b"1 w1"
        assert extra_starts(caplog) == []


@pytest.mark.parametrize("earlier", [0, 2])
async def test_a_lease_without_a_run_is_ended_as_the_attempt_that_it_was(
    server: TestServer, ns: str, earlier: int
) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake()
        (job,) = await stage.enqueue()
        if earlier:
            stage.redis.hset(stage.part.attempts, job.id, f'{earlier} t {{"failures":{earlier}}}')
        await stage.start()
        stage.redis.delete(stage.part.runs)
        await until(node.tick, lambda swept: swept.reclaimed == 1)
        assert (await stage.attempts(job)).attempt == earlier + 1


async def test_a_dispatched_job_whose_entry_is_gone_gets_a_new_one(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake(batch=3)
        made = await stage.enqueue(5)
        for job in made[:2]:
            entry = (await stage.where(job)).entry
            stage.redis.xdel(stage.part.queue(QUEUE).stream, entry)
        await until(node.scan, lambda swept: swept.requeued == 2)
        assert set(await stage.start(5)) == {job.id for job in made}
        expected = sorted((job.id, 1, "entry_lost") for job in made[:2])
        assert sorted(extra_starts(caplog)) == expected


async def test_a_whole_stream_that_is_gone_comes_back(server: TestServer, ns: str) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake()
        made = await stage.enqueue(3)
        stage.redis.delete(stage.part.queue(QUEUE).stream)
        await until(node.scan, lambda swept: swept.requeued == 3)
        # The group was lost with the stream; the first take makes it again.
        started = {*await stage.start(3), *await stage.start(3)}
        assert started == {job.id for job in made}


async def test_what_a_consumer_read_and_never_began_gets_a_new_entry(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake()
        (job,) = await stage.enqueue()
        (old,) = read_as_foreign_consumer(stage, 1)
        await until(node.scan, lambda swept: swept.requeued == 1)
        assert extra_starts(caplog) == [(job.id, 1, "never_begun")]
        assert await begin(stage, [old]) == "A"  # it comes back too late
        assert await stage.start() == [job.id]
        q = stage.part.queue(QUEUE)
        assert stage.redis.xlen(q.stream) == 0
        pending: Any = stage.redis.xpending(q.stream, "workers")
        assert pending["pending"] == 0
        assert int(str(stage.redis.hget(q.flow, "depth"), "ascii")) == 0


async def test_entries_of_a_dead_consumer_are_all_found_behind_any_number_of_others(
    server: TestServer, ns: str
) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake(batch=1, never_begun_s=0.3)
        made = await stage.enqueue(40)
        most: list[Any] = [entry for entry, _ in read_as_foreign_consumer(stage, 40)]
        stream = stage.part.queue(QUEUE).stream
        dead = [most.pop() for _ in range(3)]
        # 37 entries are fresh at every look; the holder of the last three is dead.
        stage.redis.xclaim(stream, "workers", "dead", 0, dead, idle=3_600_000, justid=True)

        async def scan_among_fresh_ones() -> Any:
            stage.redis.xclaim(stream, "workers", "live", 0, most, idle=0, justid=True)
            return await node.scan()

        written_ms = int(dead[0].split("-")[0])
        async with asyncio.timeout(10):
            while True:
                if stage.store.now_ms() > written_ms + 400:
                    break
                await asyncio.sleep(0.01)
        assert (await scan_among_fresh_ones()).requeued == 3
        assert {(await stage.where(job)).entry.decode() for job in made[-3:]}.isdisjoint(dead)
        assert (await stage.where(made[0])).entry.decode() == most[0]


async def test_a_job_begun_just_before_the_repair_is_left_alone(
    server: TestServer, ns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake(never_begun_s=0.01)
        (job,) = await stage.enqueue()
        entries = read_as_foreign_consumer(stage, 1)
        call, asked = stage.store.call, list[str]()

        async def begun_first(wanted: Any, **named: Any) -> Any:
            if wanted.script == "requeue" and not asked:
                asked.append(wanted.script)
                assert await begin(stage, entries) == "T"
            return await call(wanted, **named)

        monkeypatch.setattr(stage.store, "call", begun_first)
        await until(node.scan, lambda _: asked)
        place = await stage.where(job)
        assert (place.run, place.entry) == (b"1 theirs", b"")
        assert stage.redis.xlen(stage.part.queue(QUEUE).stream) == 0


async def test_pending_entries_that_no_job_names_are_settled(server: TestServer, ns: str) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake()
        cancelled, deleted = await stage.enqueue(2)
        entries = read_as_foreign_consumer(stage, 2)
        q = stage.part.queue(QUEUE)
        assert await stage.cancel(cancelled) == "K"
        stage.redis.xdel(q.stream, entries[1][0])
        stage.redis.xadd(q.stream, {"not": "ours"})
        read_as_foreign_consumer(stage, 1)
        swept = await until(node.scan, lambda swept: swept.settled >= 1)
        await until(node.scan, lambda _: stage.redis.xpending(q.stream, "workers")["pending"] == 0)
        assert swept.settled
        assert await stage.start(2) == [deleted.id]
        assert stage.redis.xlen(q.stream) == 0


async def test_a_depth_that_drifted_is_mended(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake()
        await stage.enqueue(3)
        flow = stage.part.queue(QUEUE).flow
        stage.redis.hset(flow, "depth", 9000)
        assert (await node.scan()).recounted == 1
        assert stage.redis.hget(flow, "depth") == b"3"
        assert "depth_mended partition=0 queue=q counted=9000 there=3" in caplog.text
        assert (await node.scan()).recounted == 0


async def test_dead_jobs_go_when_their_time_is_over(server: TestServer, ns: str) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake(dead_keep_s=0.05, batch=1)
        made = await stage.enqueue(3)
        for job in made:
            await die(stage, job)
        assert (await stage.sweeper(dead_keep_s=3600).scan()).purged == 0
        await until(node.scan, lambda _: stage.redis.zcard(stage.part.queue(QUEUE).dead) == 0)
        for job in made:
            place = await stage.where(job)
            assert (place.doc, place.attempts, place.dead, place.result) == (b"", b"", b"", b"")
            assert decode_tombstone(place.tombstone).state is JobState.FAILED


async def test_a_dead_jobs_key_stays_taken_until_its_window_ends(
    server: TestServer, ns: str
) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake(dead_keep_s=0.01)
        (job,) = await stage.enqueue(options=Options(key="k", key_window_s=3600))
        await die(stage, job)
        await until(node.scan, lambda swept: swept.purged == 1)
        assert is_stub((await stage.where(job)).doc)
        assert 3_500_000 < stage.redis.pttl(stage.part.job(job.id)) <= 3_600_000


async def test_a_repeated_purge_answers_the_same_and_spares_what_lives(
    server: TestServer, ns: str
) -> None:
    async with staged(server.url, ns) as stage:
        (dead,) = await stage.enqueue()
        await die(stage, dead)
        (live,) = await stage.enqueue(in_ms=60_000)
        tag = new_token()
        wanted = [(dead.id, b""), (live.id, b"")]
        young = sweep.purge(stage.part, QUEUE, wanted, keep_ms=60_000, tag=tag)
        assert (await stage.store.call(young)).codes == "YA"
        call = sweep.purge(stage.part, QUEUE, wanted, keep_ms=0, tag=tag)
        assert (await stage.store.call(call)).codes == "MA"
        assert (await stage.store.call(call)).codes == "=A"
        assert (await stage.where(live)).due


async def test_a_damaged_stream_stops_no_other_queue(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake()
        await stage.enqueue(queue="broken")
        (job,) = await stage.enqueue()
        stage.redis.set(stage.part.queue("broken").stream, "not a stream")
        read_as_foreign_consumer(stage, 1)
        await until(node.scan, lambda swept: swept.requeued == 1)
        assert await stage.start() == [job.id]
        await node.scan()
        assert caplog.text.count("damaged_key partition=0 queue=broken") == 1


@pytest.mark.parametrize("damage", ["runs", "dispatched"])
async def test_a_damaged_partition_keeps_the_scan_from_no_other(
    server: TestServer, ns: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(server.url, ns, partitions=2) as stage:
        node = await stage.awake()
        (job,) = await stage.enqueue(slot=16_000)  # of the second partition, looked at last
        damaged, sound = stage.store.keys.parts
        stage.redis.set(getattr(damaged, damage), "no hash")
        entry = stage.redis.hget(sound.dispatched, job.id)
        stage.redis.xdel(sound.queue(QUEUE).stream, entry)
        swept = await until(node.scan, lambda total: total.requeued)
        assert swept.requeued == 1
        assert stage.redis.hget(sound.dispatched, job.id) not in {None, entry}
    assert "damaged_key partition=0" in caplog.text
