"""The commands that look at jobs and change them, as a shell calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from redjob.calls import work
from redjob.cli.root import DONE, FAILED, NOT_REACHABLE, WRONG_USE
from redjob.ids import new_token
from tests.flow.commands import redjob
from tests.flow.sweeping import QUEUE, Made, Stage, staged

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.support.servers import TestServer

pytestmark = [pytest.mark.anyio, pytest.mark.server("valkey", "redis", "cluster")]

UNKNOWN = "019a2b3c-0000-7000-8000-000000000005"


@pytest.fixture
async def stage(
    server: TestServer, ns: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Stage]:
    """A namespace that the environment names, as every option may be named."""
    monkeypatch.setenv("REDJOB_REDIS_URL", server.url)
    monkeypatch.setenv("REDJOB_NAMESPACE", ns)
    async with staged(server.url, ns) as opened:
        yield opened


async def die(stage: Stage, *jobs: Made, ended_ms: int = 0) -> None:
    """Run jobs into their death."""
    for job in jobs:
        assert await stage.start(lease_ms=60_000) == [job.id]
        past = (
            b'{"failures":5,"last":"failed","dead":"failure",'
            b'"error":{"type":"ValueError","message":"no such user","at":%d}}' % ended_ms
        )
        end = work.End(job.id, QUEUE, 1, "F", job.head, 0, past + b"\n{}")
        await stage.store.call(work.finish(stage.part, "w1", [end], tag=new_token()))


async def test_enqueue_prints_the_id_and_a_key_used_again_says_so(stage: Stage) -> None:
    first = redjob("enqueue", "task", '{"n": 1}', "-q", QUEUE, "--idempotency-key", "k")
    assert (first.code, first.err) == (DONE, "")
    again = redjob("enqueue", "task", '{"n": 1}', "-q", QUEUE, "--idempotency-key", "k", "--json")
    assert again.objects == [{"id": first.out.strip(), "created": False}]
    other = redjob("enqueue", "task", '{"n": 2}', "-q", QUEUE, "--idempotency-key", "k")
    assert other.code == FAILED
    assert first.out.strip() in other.err
    assert await stage.start() == [first.out.strip()]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("task", "[1]"), "PAYLOAD is not a JSON object"),
        (("task", "{"), "PAYLOAD is not a JSON object"),
        (("a b",), "task"),
        (("task", "--at", "2026-09-25T14:00:00"), "no time zone"),
        (("task", "--at", "tomorrow"), "ISO 8601"),
        (("task", "--in", "soon"), "span of time"),
        (("task", "--in", "nan"), "span of time"),
        (("task", "--in", "-5"), "negative"),
        (("task", "--in", "1m", "--at", "2026-09-25T14:00:00Z"), "exclude"),
        (("task", "--priority", "urgent"), "priority"),
        (("task", "--priority", "10"), "priority"),
        (("task", "--max-attempts", "0"), "max_attempts"),
        (
            (
                "task",
                "--no-such-option",
            ),
            "No such option",
        ),
    ],
)
async def test_wrong_use_is_one_line_that_names_the_fault(
    stage: Stage, arguments: tuple[str, ...], told: str
) -> None:
    ran = redjob("enqueue", *arguments)
    assert ran.code == WRONG_USE
    assert ran.out == ""
    assert ran.err.startswith("redjob: ")
    assert ran.err.count("\n") == 1
    assert told in ran.err
    assert await stage.start() == []


async def test_a_job_can_be_shown_rescheduled_and_cancelled(stage: Stage) -> None:
    job_id = redjob("enqueue", "task", "--in", "1h", "-q", QUEUE).out.strip()
    (shown,) = redjob("job", "show", job_id, "--json").objects
    assert (shown["state"], shown["queue"], shown["attempt"]) == ("SCHEDULED", QUEUE, 0)
    assert "SCHEDULED" in redjob("job", "show", job_id).out
    assert redjob("job", "reschedule", job_id).code == WRONG_USE
    (moved,) = redjob("job", "reschedule", job_id, "--in", "2h", "--json").objects
    (shown,) = redjob("job", "show", job_id, "--json").objects
    assert abs(shown["run_at_ms"] - moved["run_at_ms"]) <= 1
    assert redjob("job", "cancel", job_id, "--json").objects == [
        {"id": job_id, "cancel": "CANCELLED"}
    ]
    assert redjob("job", "cancel", job_id).code == DONE
    refused = redjob("job", "reschedule", job_id, "--in", "1h")
    assert (refused.code, refused.err.count("\n")) == (FAILED, 1)
    assert "CANCELLED" in refused.err


async def test_what_is_not_there_or_no_id_is_told_apart(stage: Stage) -> None:
    assert stage.redis.ping()
    for command in (["show"], ["cancel"], ["replay"], ["why"], ["reschedule", "--in", "1h"]):
        gone = redjob("job", *command, UNKNOWN)
        assert (gone.code, gone.err.count("\n")) == (FAILED, 1)
        assert UNKNOWN in gone.err
        wrong = redjob("job", *command, "not-an-id")
        assert wrong.code == WRONG_USE
        assert "job_id" in wrong.err


async def test_dead_jobs_are_listed_latest_first_replayed_and_purged(stage: Stage) -> None:
    made = await stage.enqueue(4)
    await die(stage, *made)
    q = stage.part.queue(QUEUE)
    stage.redis.zadd(q.dead, {job.id: 1000 + index for index, job in enumerate(made)})
    listed = redjob("dead", "list", "--limit", "3", "--json").objects
    assert [info["id"] for info in listed] == [job.id for job in reversed(made[1:])]
    assert listed[0]["error"]["type"] == "ValueError"
    assert "ValueError: no such user" in redjob("dead", "list", "-q", QUEUE).out
    assert redjob("dead", "list", "-q", "other", "--json").objects == []
    assert redjob("dead", "show", made[0].id, "--json").objects[0]["failures"] == 5

    assert redjob("dead", "replay", made[0].id, "--json").objects == [{"replayed": 1}]
    assert redjob("dead", "show", made[0].id).code == FAILED
    assert redjob("job", "replay", made[0].id).code == FAILED
    assert redjob("dead", "purge", made[1].id, "--json").objects == [{"purged": 1}]
    assert redjob("dead", "purge", "-q", QUEUE, "--older-than", "30000w").out == "purged 0\n"
    assert redjob("dead", "replay", "-q", QUEUE, "--json").objects == [{"replayed": 2}]
    assert redjob("dead", "list", "--json").objects == []
    assert {job.id for job in made if (await stage.where(job)).due} == {
        made[0].id, made[2].id, made[3].id,
    }  # fmt: skip


async def test_a_whole_queue_of_dead_jobs_is_purged_in_pages(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redjob.cli.dead._PAGE", 2)
    made = await stage.enqueue(5)
    await die(stage, *made)
    for wrong in (("purge",), ("purge", made[0].id, "-q", QUEUE), ("replay",)):
        assert redjob("dead", *wrong).code == WRONG_USE
    assert redjob("dead", "purge", "-q", QUEUE).out == "purged 5\n"
    assert [(await stage.where(job)).doc for job in made] == [b""] * 5


async def test_queues_are_counted_over_all_places(stage: Stage) -> None:
    scheduled = await stage.enqueue(2, in_ms=3_600_000)
    await stage.enqueue(3)
    await stage.enqueue(queue="other")
    await stage.start(2, lease_ms=60_000)
    other, counted = redjob("queues", "list", "--json").objects
    assert (other["queue"], other["dispatched"], other["running"]) == ("other", 1, 0)
    assert (counted["queue"], counted["scheduled"]) == (QUEUE, 2)
    assert (counted["dispatched"], counted["running"]) == (1, 2)
    assert counted["next_due_ms"] == int((await stage.where(scheduled[0])).due)
    table = redjob("queues", "list").out.splitlines()
    assert table[0].split()[:3] == ["queue", "scheduled", "ready"]
    assert len(table) == 3


async def test_a_server_that_is_not_there_is_code_3_without_its_password(ns: str) -> None:
    ran = redjob(
        "job", "show", UNKNOWN, "--redis-url", "redis://me:s3cret@127.0.0.1:1/0", "--namespace", ns
    )
    assert (ran.code, ran.err.count("\n")) == (NOT_REACHABLE, 1)
    assert "s3cret" not in ran.err
    assert "127.0.0.1:1" in ran.err


async def test_a_namespace_that_nobody_opened_says_how_to_open_it(
    server: TestServer, ns: str
) -> None:
    ran = redjob("enqueue", "task", "--redis-url", server.url, "--namespace", ns)
    assert ran.code == FAILED
    assert "start `redjob scheduler`" in ran.err


async def test_options_are_checked_before_anything_is_asked(ns: str) -> None:
    for arguments in (
        ("--namespace", "a{b}"),
        ("--redis-url", "http://x"),
        ("--redis-url", "redis+sentinel://h:1"),
        ("--partitions", "0"),
        ("--partitions", "many"),
    ):
        ran = redjob("enqueue", "task", *arguments)
        assert (ran.code, ran.err.count("\n")) == (WRONG_USE, 1)
    assert redjob("no-such-command").code == WRONG_USE
    assert ns


@pytest.mark.parametrize(
    "command",
    ["", "enqueue", "job", "job show", "job why", "queues list", "dead purge", "doctor"],
)
def test_every_command_has_help_and_an_example(command: str) -> None:
    ran = redjob(*command.split(), "--help")
    assert (ran.code, ran.err) == (DONE, "")
    assert "redjob " in ran.out
    assert "Example" in ran.out or not command


def test_version_is_told() -> None:
    assert redjob("--version").out.startswith("redjob, version ")
