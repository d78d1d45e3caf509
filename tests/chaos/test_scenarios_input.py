"""Text and sizes that break other queues: they come back as they went in, or are refused in words."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any

import pytest
from redis import Redis

from redjob import AsyncClient, Client, InvalidArgument, JobState, Retry
from redjob.codec import decode_attempts
from redjob.config import Limits
from tests.support.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.servers import TestServer

ODD = (
    "\u4e2d\u6587\u202e",
    "\x00\x01\x7f",
    "a\r\nb",
    "\U0001f4a9",
    "\u2028\ufeff",
    "\xff\x9c",
    "{p0}",
)
BAD_NAMES = (
    "\u4e2d\u6587",
    "a\u202eb",
    "a\r\nb",
    "a b",
    "a\x00",
    "{p0.1}",
    "\u00fc",
    "\ud800",
    "",
    "a" * 129,
)
LIMIT = Limits().payload_bytes
QUICKLY_S = 8.0


@pytest.fixture(scope="module")
def stage(server: TestServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    namespace = f"t{secrets.token_hex(5)}"
    with Scene(server.url, tmp_path_factory.mktemp("stage"), namespace=namespace) as opened:
        yield opened.open()


def test_odd_text_in_payloads_and_keys_comes_back_as_it_went_in(stage: Scene) -> None:
    for number, text in enumerate(ODD, start=1):
        value = {"text": text, text: [text, {"deep": text}]}
        job = stage.job("echo", value=value, key=text, number=number)
        assert job.result(timeout_s=10) == value
        assert stage.job("echo", value=value, key=text, number=number).id == job.id
    stage.drain()


def test_odd_text_in_errors_is_kept_as_far_as_it_is_text_and_ends_no_worker(stage: Scene) -> None:
    worker = stage.services[-1]
    once = Retry(max_attempts=1)
    jobs = {
        text: stage.job("raise_text", points=[ord(char) for char in text], retry=once)
        for text in (*ODD, "a\ud800b", "\udfff" * 5000)
    }
    for text, job in jobs.items():
        stage.wait(lambda j=job: j.state() is JobState.FAILED, what="dead")  # type: ignore[misc] # mypy: no defaults
        error = job.info().error
        assert error is not None
        assert error.type == "Planned"
        expected = text.encode("utf-8", "replace").decode()
        assert error.message == expected if len(text) < 100 else error.message.startswith("???")
    assert worker.alive
    assert stage.job("echo", value=1).result(timeout_s=10) == 1
    assert not any("Traceback" in line for line in worker.lines())


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_names_that_could_break_a_key_are_refused_by_field_and_nothing_is_stored(name: str) -> None:
    client = Client("redis://127.0.0.1:1")  # refused before anything is sent
    for field in ("queue", "tenant"):
        with pytest.raises(InvalidArgument, match=field) as refused:
            client.enqueue("task", {}, **{field: name})  # type: ignore[arg-type] # a name of the parametrization
        refused.value.remedy.encode()  # can be shown
        str(refused.value).encode()
    with pytest.raises(InvalidArgument, match="task"):
        client.enqueue(name, {})
    with pytest.raises(InvalidArgument, match="namespace"):
        Client("redis://127.0.0.1:1", namespace=name)


@pytest.mark.parametrize(
    "payload",
    [{"a": "\ud800"}, {"\ud800": 1}, {"a": ["x", {"b": "\udfff"}]}, {"a": b"\x00\xff\x9c"}],
    ids=ascii,
)
def test_what_is_no_text_is_refused_with_the_place_where_it_stands(payload: dict[str, Any]) -> None:
    client = Client("redis://127.0.0.1:1")
    with pytest.raises(InvalidArgument) as refused:
        client.enqueue("task", payload)
    str(refused.value).encode()
    assert refused.value.field.split(".")[0] in {"payload", "a"}


async def test_a_users_client_that_decodes_replies_can_be_handed_over(stage: Scene) -> None:
    value = {"text": ODD[0]}
    with Redis.from_url(stage.settings.url, decode_responses=True) as redis:
        with Client(redis, namespace=stage.settings.namespace) as client:
            job = client.enqueue("echo", {"number": 1, "value": value}, queue="q")
            assert job.result(timeout_s=10) == value
            later = client.enqueue_in(60, "echo", {"number": 2}, queue="q")
            later.cancel()
            assert later.state() is JobState.CANCELLED
        aclient = AsyncClient(redis, namespace=stage.settings.namespace)
        ajob = await aclient.enqueue("echo", {"number": 3, "value": value}, queue="q")
        assert await ajob.result(timeout_s=10) == value
        await aclient.aclose()


def _of_size(size: int) -> dict[str, Any]:
    empty = len(b'{"number":1,"value":""}')
    return {"number": 1, "value": "x" * (size - empty)}


def test_payloads_up_to_the_limit_run_and_come_back_and_one_byte_more_is_refused(
    stage: Scene,
) -> None:
    assert stage.client.enqueue("plain").id  # no payload at all
    for size in (LIMIT - 1, LIMIT):
        payload = _of_size(size)
        job = stage.client.enqueue("echo", payload, queue="q")
        assert job.result(timeout_s=10) == payload["value"]
    with pytest.raises(InvalidArgument, match=f"{LIMIT + 1} bytes") as refused:
        stage.client.enqueue("echo", _of_size(LIMIT + 1), queue="q")
    assert refused.value.field == "payload"
    assert "reference" in refused.value.remedy


def _deep(depth: int) -> dict[str, Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return {"value": value}


BOMBS: dict[str, Callable[[], dict[str, Any]]] = {
    "64 MiB of text": lambda: {"value": "x" * (64 << 20)},
    "64 MiB in one key": lambda: {"x" * (64 << 20): 1},
    "a million keys": lambda: {f"k{number}": number for number in range(1_000_000)},
    "a million items": lambda: {"value": list(range(1_000_000))},
    "100,000 levels": lambda: _deep(100_000),
    "65 levels": lambda: _deep(65),
}


@pytest.mark.parametrize("make", BOMBS.values(), ids=BOMBS)
def test_a_payload_that_is_far_too_much_is_refused_quickly_and_in_few_words(
    make: Callable[[], dict[str, Any]],
) -> None:
    client = Client("redis://127.0.0.1:1")
    payload = make()
    began = time.monotonic()
    with pytest.raises(InvalidArgument) as refused:
        client.enqueue("task", payload)
    assert time.monotonic() - began < QUICKLY_S
    assert len(str(refused.value)) < 500


def test_a_record_that_another_client_made_too_deep_is_dead_and_harms_no_worker(
    stage: Scene,
) -> None:
    job = stage.client.enqueue_in(1.0, "echo", {"number": 1, "value": "here"}, queue="q")
    part = stage.keys.of_job(job.id)
    doc: Any = stage.redis.get(part.job(job.id))
    bomb = doc.replace(b'"here"', b"[" * 100_000 + b"]" * 100_000)
    stage.redis.set(part.job(job.id), bomb)
    stage.wait(lambda: stage.redis.zscore(part.queue("q").dead, job.id), what="dead")
    past = decode_attempts(stage.redis.hget(part.attempts, job.id) or b"").past
    assert (past.dead, past.failures, past.crashes) == ("rejected", 0, 0)
    assert stage.redis.get(part.job(job.id)) == bomb
    assert stage.job("echo", value=2).result(timeout_s=10) == 2
    assert not any("Traceback" in line for line in stage.services[-1].lines())
    stage.check_alive()
