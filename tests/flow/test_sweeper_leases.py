"""Expired leases on real servers: ended once, explained once, and nothing of a live worker's touched."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from redjob.calls import work
from redjob.codec import decode_outcome, decode_tombstone, is_stub
from redjob.errors import StoreUnavailable
from redjob.ids import new_token
from redjob.model import JobState, Options
from tests.flow.sweeping import QUEUE, extra_starts, staged, until

if TYPE_CHECKING:
    from tests.support.servers import TestServer

pytestmark = [pytest.mark.anyio, pytest.mark.server("valkey", "redis", "cluster")]


@pytest.fixture(autouse=True)
def _info_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "redjob.sweeper")


async def test_a_job_whose_worker_died_is_due_again_after_crash_backoff(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake()
        (job,) = await stage.enqueue()
        await stage.start(worker="w1")
        before_ms = stage.store.now_ms()
        await until(node.tick, lambda swept: swept.reclaimed == 1)
        place, told = await stage.where(job), await stage.attempts(job)
        assert before_ms + 500 <= int(place.due) <= stage.store.now_ms() + 1000
        assert (place.run, place.lease) == (b"", b"")
        assert (told.attempt, told.past.crashes, told.past.failures) == (1, 1, 0)
        assert told.past.last == "crashed"
        assert told.past.error is not None
        assert told.past.error.type == "WorkerCrashed"
        assert "w1" in told.past.error.message
        assert extra_starts(caplog) == [(job.id, 1, "lease_expired")]
        assert (await node.tick()).reclaimed == 0


async def test_a_starting_sweeper_or_worker_never_ends_a_live_lease(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(server.url, ns) as stage:
        jobs = await stage.enqueue(20)
        await stage.start(20, lease_ms=60_000)
        for worker in ("w2", "w3"):
            assert await stage.start(20, worker=worker) == []
            node = await stage.awake()
            await node.tick()
            await node.scan()
        assert [(await stage.where(job)).run for job in jobs] == [b"1 w1"] * 20
        assert extra_starts(caplog) == []


async def test_a_heartbeat_that_comes_in_time_keeps_the_attempt(
    server: TestServer, ns: str
) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake()
        (job,) = await stage.enqueue()
        await stage.start(lease_ms=60_000)
        beat = [work.Beat(job.id, QUEUE, 1, job.head)]
        call = work.heartbeat(stage.part, "w1", beat, lease_ms=60_000, tag=new_token())
        assert (await stage.store.call(call)).codes == "H"
        await node.tick()
        assert (await stage.where(job)).run == b"1 w1"


async def test_a_job_that_kills_its_workers_ends_dead_with_its_record_untouched(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake()
        payload = '{"raw":"中文\u202e\\u0000"}'.encode()
        options = Options(max_crashes=1)
        (poison,) = await stage.enqueue(options=options, payload=payload)
        (other,) = await stage.enqueue()
        assert set(await stage.start(2)) == {poison.id, other.id}
        await until(node.tick, lambda swept: swept.died == 1)
        place, told = await stage.where(poison), await stage.attempts(poison)
        assert place.doc == poison.doc
        assert place.dead
        assert told.past.dead == "crash"
        outcome = decode_outcome(place.result)
        assert (outcome.state, outcome.attempt) == (JobState.FAILED, 1)
        assert outcome.error is not None
        assert outcome.error.type == "WorkerCrashed"
        assert f"dead job={poison.id} attempt=1 cause=crash" in caplog.text
        assert (await stage.where(other)).due
        assert extra_starts(caplog) == [(other.id, 1, "lease_expired")]


async def test_a_cancel_that_the_dead_worker_never_saw_is_carried_out(
    server: TestServer, ns: str
) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake()
        (job,) = await stage.enqueue(options=Options(key="k"))
        await stage.start()
        assert await stage.cancel(job) == "Q"
        await until(node.tick, lambda swept: swept.cancelled == 1)
        place = await stage.where(job)
        assert decode_tombstone(place.tombstone).state is JobState.CANCELLED
        assert is_stub(place.doc)  # the key is still taken
        assert (place.attempts, place.cancel) == (b"", b"")


async def test_after_a_silence_of_all_sweepers_workers_are_heard_first(
    server: TestServer, ns: str
) -> None:
    async with staged(server.url, ns, partitions=2) as stage:
        node = stage.sweeper(lease_s=60)
        (job,) = await stage.enqueue(slot=0)
        await stage.start()
        swept = await node.tick()
        assert (swept.graced, swept.reclaimed) == (2, 0)
        assert (await stage.where(job)).run == b"1 w1"
        # The grace that the first call has set is over, and sweepers were not silent since.
        stage.redis.hset(stage.part.meta, "grace_until", 0)
        assert (await node.tick()).reclaimed == 1


async def test_nothing_is_ended_before_an_owner_has_checked_a_restarted_server(
    server: TestServer, ns: str
) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake()
        (job,) = await stage.enqueue()
        await stage.start()
        run_id = stage.redis.hget(stage.part.meta, "run_id")
        stage.redis.hset(stage.part.meta, "run_id", "another")
        assert (await node.tick()).held == 1
        assert (await stage.where(job)).run == b"1 w1"
        stage.redis.hset(stage.part.meta, "run_id", str(run_id, "ascii"))
        await until(node.tick, lambda swept: swept.reclaimed == 1)


async def test_two_sweepers_end_each_attempt_once(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(server.url, ns) as stage:
        first, second = await stage.awake(), await stage.awake()
        made = await stage.enqueue(40)
        await stage.start(40)
        await asyncio.sleep(0.005)
        swept = await asyncio.gather(first.tick(), second.tick())
        assert sum(one.reclaimed for one in swept) == 40
        assert sorted(extra_starts(caplog)) == sorted((job.id, 1, "lease_expired") for job in made)
        assert {(await stage.attempts(job)).past.crashes for job in made} == {1}


async def test_an_end_whose_reply_was_lost_is_still_explained(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake()
        (job,) = await stage.enqueue()
        await stage.start()
        lost: list[str] = []
        nodes: Any = vars(stage.store)["_nodes"]  # where a reply is lost
        once = nodes.call

        async def lossy(call: Any, scripts: Any) -> Any:
            reply = await once(call, scripts)
            if call.script == "reclaim" and not lost:
                lost.append(call.args[0])
                raise ConnectionResetError
            return reply

        monkeypatch.setattr(nodes, "call", lossy)
        swept = await until(node.tick, lambda swept: swept.reclaimed)
        assert len(lost) == 1
        assert (swept.reclaimed, (await stage.attempts(job)).past.crashes) == (1, 1)
        assert extra_starts(caplog) == [(job.id, 1, "lease_expired")]


async def test_garbage_and_missing_records_hide_no_other_job(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake(batch=2)
        made = await stage.enqueue(7)
        await stage.start(7)
        stage.redis.set(stage.part.job(made[0].id), b"\x00\xff not json")
        stage.redis.set(stage.part.job(made[1].id), b'{"home":"2026-01-01"}')
        stage.redis.delete(stage.part.job(made[2].id))
        stage.redis.hset(stage.part.runs, made[3].id, "garbage")
        await until(node.tick, lambda swept: swept.reclaimed == 3)
        assert [bool((await stage.where(job)).due) for job in made] == [False] * 4 + [True] * 3
        await node.tick()
        for job in made[:2]:
            assert caplog.text.count(f"damaged_record job={job.id}") == 1
        assert caplog.text.count(f"lost job={made[2].id} partition=0 place=running") == 1


async def test_a_key_of_the_wrong_type_stops_no_other_partition(
    server: TestServer, ns: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(server.url, ns, partitions=2) as stage:
        node = await stage.awake()
        (job,) = await stage.enqueue(slot=0)
        await stage.start()
        broken = stage.store.keys.parts[1]
        stage.redis.set(broken.running, "not a zset")
        await until(node.tick, lambda swept: swept.reclaimed == 1)
        assert (await stage.where(job)).due
        assert "damaged_key partition=1" in caplog.text


async def test_checkpoint_and_failures_survive_a_crash(server: TestServer, ns: str) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake()
        (job,) = await stage.enqueue()
        await stage.start()
        past = b'{"failures":2,"last":"failed","checkpoint":{"page":7}}'
        beat = [work.Beat(job.id, QUEUE, 1, job.head, b"", past)]
        await stage.store.call(work.heartbeat(stage.part, "w1", beat, lease_ms=1, tag=new_token()))
        await until(node.tick, lambda swept: swept.reclaimed == 1)
        told = (await stage.attempts(job)).past
        assert (told.failures, told.crashes) == (2, 1)
        assert bytes(told.checkpoint) == b'{"page":7}'


async def test_a_tick_without_redis_says_so(server: TestServer, ns: str, monkeypatch: Any) -> None:
    async with staged(server.url, ns) as stage:
        node = await stage.awake()

        async def gone(*_: object) -> Any:
            raise ConnectionRefusedError

        monkeypatch.setattr(vars(stage.store)["_nodes"], "at", gone)
        with pytest.raises(StoreUnavailable):
            await node.tick()
