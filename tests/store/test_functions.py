"""The function library: loaded by a command, and all that a program in another language needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from redis.exceptions import OutOfMemoryError

from redjob.calls.library import function_name, library_text
from redjob.calls.scripts import script_names
from tests.flow.commands import redjob
from tests.store.test_full import full
from tests.support.samples import sample_calls
from tests.support.seed import QUEUE
from tests.support.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.servers import TestServer

pytestmark = [
    pytest.mark.server("valkey", "redis"),
    pytest.mark.parametrize("form", ["scripts"]),
]


def loaded(world: World, server: TestServer) -> Callable[..., list[Any]]:
    """Load the library as its users do; returns FCALL of a script by its name."""
    ran = redjob("functions", "load", "--json", "--redis-url", server.url)
    assert ran.code == 0
    (told,) = ran.objects
    assert told["functions"] == [function_name(name) for name in script_names()]

    def fcall(script: str, keys: list[str], *args: object) -> list[Any]:
        reply: list[Any] = world.redis.fcall(f"redjob_{script}", len(keys), *keys, *args)
        return reply

    return fcall


def test_a_consumer_in_another_language_runs_a_job(world: World, server: TestServer) -> None:
    fcall, job = loaded(world, server), world.dispatched()
    base = f"{world.namespace}:{{{world.part.tag}}}:"

    def keys(names: str) -> list[str]:
        return [base + name for name in names.split()]

    stream = f"{base}stream:{QUEUE}"
    ((_, ((entry, fields),)),) = world.redis.xreadgroup("workers", "theirs", {stream: ">"}, count=1)
    job_id, doc = fields[b"id"].decode(), fields[b"doc"]
    assert (job_id, doc) == (job.id, job.doc)

    places = "meta journal dispatched running runs attempts"
    begun = fcall(
        "begin", keys(f"{places} flow:{QUEUE} stream:{QUEUE}"), "t1", "", "theirs", 30_000, entry, job_id
    )  # fmt: skip
    assert (begun[0], begun[4:]) == (b"OK", [b"T", [1]])

    places = "meta journal running runs attempts cancels progress dispatched finished"
    beat = fcall(
        "heartbeat", keys(f"{places} due:{QUEUE} ready:{QUEUE} job:{job_id}"),
        "t2", "theirs", 30_000, 1, job_id, 1, 1, doc[:44], "", "",
    )  # fmt: skip
    assert beat[4] == b"H"

    places = "meta journal running runs attempts finished cancels progress dispatched queues done waiters"
    of_queue = " ".join(
        f"{name}:{QUEUE}" for name in ["due", "ready", "dead", "flow", "stream", "bell"]
    )
    result = '{"state":"COMPLETED","ended":1,"attempt":1,"result":"done"}'
    finish = keys(f"{places} {of_queue} job:{job_id} result:{job_id}")
    end = ("t3", "theirs", 1, QUEUE, "C", 1, 1, doc[:44], 60_000, result, "")
    assert fcall("finish", finish, *end)[4] == b"M"
    assert fcall("finish", finish, *end)[4] == b"=", "a lost reply is asked for again"
    assert world.locate(job).result == result.encode()
    world.check()


def test_every_function_refuses_a_partition_that_nobody_has_opened(
    world: World, server: TestServer
) -> None:
    fcall = loaded(world, server)
    world.redis.delete(world.part.meta)
    for call, *_ in sample_calls(world.part, world.namespace):
        if call.script not in {"renew", "fence"}:
            assert fcall(call.script, call.keys, *call.args)[0] == b"NOTREADY"


def test_at_maxmemory_the_same_go_on_as_without_functions(world: World, server: TestServer) -> None:
    fcall = loaded(world, server)
    refused: set[str] = set()
    with full(world):
        for call, *_ in sample_calls(world.part, world.namespace):
            try:
                fcall(call.script, call.keys, *call.args)
            except OutOfMemoryError:
                refused.add(call.script)
    assert refused == {"enqueue", "fire", "release", "replay", "requeue", "reschedule"}


def test_the_library_is_printed_for_who_loads_it_by_other_means(
    world: World,
) -> None:
    printed = redjob("functions", "export").out
    assert printed == library_text()
    assert world.redis.function_load(printed, replace=True) == b"redjob"
    (found,) = world.redis.function_list(library="redjob")
    named = dict(zip(found[::2], found[1::2], strict=True))
    assert len(named[b"functions"]) == len(script_names())
