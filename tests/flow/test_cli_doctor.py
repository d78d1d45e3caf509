"""`redjob doctor` and `redjob job why`: what is wrong, in words that say what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from redjob.calls import owner, sweep
from redjob.cli.root import DONE, FAILED
from redjob.cli.why import Around, why_not_running
from redjob.ids import new_token
from redjob.keys import workers_key
from redjob.model import ErrorInfo, JobInfo, JobState
from redjob.partitions import QUORUM_KEYS
from tests.flow.commands import Ran, redjob
from tests.flow.sweeping import QUEUE, Stage, staged

if TYPE_CHECKING:
    from tests.support.servers import OwnServerFactory, TestServer

pytestmark = [pytest.mark.anyio, pytest.mark.server("valkey", "redis", "cluster")]

NOW_MS = 1_790_000_000_000


def doctor(url: str, ns: str, *more: str) -> tuple[Ran, dict[str, Any]]:
    """Run the doctor; its findings by name."""
    ran = redjob("doctor", "--json", "--redis-url", url, "--namespace", ns, *more)
    (told,) = ran.objects
    return ran, {check["name"]: check for check in told["checks"]}


async def everybody_is_there(stage: Stage) -> None:
    """Do what a scheduler, a sweeper and a worker leave to be seen."""
    want = range(len(stage.store.keys.parts))
    ns = stage.store.namespace
    for quorum in range(1 if stage.store.is_one_server else QUORUM_KEYS):
        await stage.store.call(owner.renew(ns, quorum, "n1", ttl_ms=60_000, want=want, drop=[]))
    for part in stage.store.keys.parts:
        stage.redis.hset(part.meta, "seen_ms", stage.store.now_ms(part))
        await stage.store.call(sweep.reclaim(part, (), grace_ms=0, tag=new_token()))
    stage.redis.zadd(workers_key(ns), {"w1": stage.store.now_ms()})


async def test_a_healthy_namespace_passes(server: TestServer, ns: str) -> None:
    async with staged(server.url, ns, partitions=4) as stage:
        await everybody_is_there(stage)
        ran, found = doctor(server.url, ns)
        assert ran.code == DONE
        assert ran.objects[0]["ok"] is True
        assert ran.objects[0]["server"].endswith(f" {server.version}")
        assert {name for name, check in found.items() if check["status"] == "fail"} == set()
        on_disk = server.kind == "cluster"  # the other shared servers keep nothing there
        assert found["appendonly"]["status"] == ("ok" if on_disk else "warn")
        assert "4 partitions" in found["namespace"]["detail"]
        assert "1 heard" in found["workers"]["detail"]
        together = {"primaries", "slots", "spread", "quorum", "replicas", "min-replicas-to-write"}
        assert (found.keys() >= together) == (server.kind == "cluster")
        table = redjob("doctor", "--redis-url", server.url, "--namespace", ns)
        assert table.code == DONE
        assert "owners" in table.out


async def test_each_thing_that_is_missing_is_named_with_its_remedy(
    server: TestServer, ns: str
) -> None:
    ran, found = doctor(server.url, ns)
    assert ran.code == FAILED
    assert "start `redjob scheduler`" in found["namespace"]["detail"]
    async with staged(server.url, ns, partitions=2) as stage:
        ran, found = doctor(server.url, ns)
        assert ran.code == FAILED
        assert "partition 0, 1: start `redjob scheduler`" in found["owners"]["detail"]
        assert "never seen: start `redjob sweeper`" in found["sweeper"]["detail"]
        assert found["workers"]["status"] == "warn"
        ran, found = doctor(server.url, ns, "--partitions", "3")
        assert ran.code == FAILED
        assert "3 was asked for but this namespace has 2" in found["namespace"]["detail"]
        await everybody_is_there(stage)
        stage.redis.hset(stage.part.meta, "run_id", "another")
        stage.redis.hset(stage.part.meta, "seen_ms", stage.store.now_ms() - 60_000)
        ran, found = doctor(server.url, ns)
        assert ran.code == FAILED
        assert "partition 0 on hold" in found["partitions"]["detail"]
        assert "last seen 60 s ago" in found["sweeper"]["detail"]


async def test_an_evicting_server_fails_unless_it_is_allowed(
    own_server: OwnServerFactory, ns: str
) -> None:
    server = own_server(extra_args=("--maxmemory-policy", "allkeys-lru", "--maxmemory", "64mb"))
    async with staged(server.url, ns) as stage:
        await everybody_is_there(stage)
        ran, found = doctor(server.url, ns)
        assert (ran.code, found["eviction"]["status"]) == (FAILED, "fail")
        assert "noeviction" in found["eviction"]["detail"]
        assert "of 64 MiB used" in found["maxmemory"]["detail"]
        ran, found = doctor(server.url, ns, "--allow-eviction")
        assert (ran.code, found["eviction"]["status"]) == (DONE, "warn")


async def test_a_server_without_config_is_no_fault(own_server: OwnServerFactory, ns: str) -> None:
    server = own_server(extra_args=("--rename-command", "CONFIG", ""))
    async with staged(server.url, ns) as stage:
        await everybody_is_there(stage)
        ran, found = doctor(server.url, ns)
        assert ran.code == DONE
        assert "no CONFIG" in found["hash-max-listpack-value"]["detail"]


async def test_why_says_what_is_missing_for_a_job_to_run(server: TestServer, ns: str) -> None:
    place = ("--redis-url", server.url, "--namespace", ns)
    async with staged(server.url, ns) as stage:
        (later,) = await stage.enqueue(in_ms=3_600_000)
        (now,) = await stage.enqueue()
        assert "due at" in redjob("job", "why", later.id, *place).out
        told = redjob("job", "why", now.id, *place, "--json").objects[0]
        assert told["state"] == "DISPATCHED"
        assert f"redjob worker app:app -Q {QUEUE}" in told["why"]
        stage.redis.zadd(stage.part.queue(QUEUE).due, {later.id: 1})
        assert "no scheduler owns partition 0" in redjob("job", "why", later.id, *place).out
        await everybody_is_there(stage)
        assert "1 worker there" in redjob("job", "why", now.id, *place).out
        await stage.start(lease_ms=60_000)
        assert "it runs: attempt 1 on worker w1" in redjob("job", "why", now.id, *place).out


JOB = JobInfo(
    id="019a2b3c-0000-7000-8000-000000000005",
    state=JobState.SCHEDULED,
    task="t",
    queue="q",
    run_at_ms=NOW_MS - 5000,
)
AROUND = Around(
    now_ms=NOW_MS,
    partition=3,
    owner="n1",
    checked=True,
    sweeper_seen_ms=NOW_MS - 500,
    waiting=7,
    paused=False,
    workers=[("w1", NOW_MS - 1000), ("w2", NOW_MS - 90_000)],
)
ERROR = ErrorInfo(type="ValueError", message="no such user", at=NOW_MS)


@pytest.mark.parametrize(
    ("job", "around", "told"),
    [
        ({"run_at_ms": NOW_MS + 200_000, "attempt": 2, "error": ERROR}, {}, "in 3 min (attempt 2"),
        ({"run_at_ms": NOW_MS + 90_000_000}, {}, "in 25.0 h"),
        ({"run_at_ms": NOW_MS + 900_000_000}, {}, "in 10 days"),
        ({"run_at_ms": NOW_MS - 400}, {}, "fires it any moment"),
        ({}, {}, "although n1 owns partition 3"),
        ({}, {"checked": False}, "the server restarted"),
        ({}, {"owner": None}, "no scheduler owns partition 3"),
        ({"state": JobState.DISPATCHED}, {}, "has 7 waiting in partition 3; 1 worker there"),
        ({"state": JobState.DISPATCHED}, {"paused": True}, "queue q is paused"),
        ({"state": JobState.DISPATCHED, "held_by": "depth"}, {}, "held back by depth"),
        ({"state": JobState.DISPATCHED, "held_by": "lost"}, {}, "the sweeper gives it"),
        ({"state": JobState.DISPATCHED}, {"workers": []}, "no worker was heard"),
        ({"state": JobState.DISPATCHED}, {"checked": False}, "the server restarted"),
        (
            {"state": JobState.RUNNING, "attempt": 1, "worker": "w1", "lease_until_ms": NOW_MS - 1},
            {},
            "the sweeper is about to end",
        ),
        (
            {"state": JobState.RUNNING, "attempt": 1, "worker": "w1", "lease_until_ms": NOW_MS - 1},
            {"sweeper_seen_ms": None},
            "start `redjob sweeper`",
        ),
        (
            {"state": JobState.RUNNING, "lease_until_ms": NOW_MS + 1, "cancel_requested_ms": 1},
            {},
            "asked to stop",
        ),
        (
            {"state": JobState.FAILED, "attempt": 5, "error": ERROR, "ended_ms": NOW_MS},
            {},
            "after 5 attempts: ValueError: no such user; `redjob job replay",
        ),
        ({"state": JobState.COMPLETED, "ended_ms": NOW_MS}, {}, "has ended: COMPLETED at 2026-"),
        ({"state": JobState.FAILED, "task": None}, {}, "has ended: FAILED"),
        ({"state": JobState.WAITING}, {}, "workflow"),
    ],
)
def test_the_reason_is_a_sentence_that_says_what_to_do(
    job: dict[str, Any], around: dict[str, Any], told: str
) -> None:
    reason = why_not_running(msgspec.structs.replace(JOB, **job), AROUND._replace(**around))
    assert told in reason
    assert "\n" not in reason
