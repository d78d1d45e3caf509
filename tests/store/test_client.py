"""The blocking client on real servers: what is stored, where, and what is refused."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from redis import Redis
from redis import asyncio as aredis

from redjob import (
    Client,
    InvalidArgument,
    JobSpec,
    JobState,
    NotReady,
    PartitionMismatch,
    Redjob,
    Retry,
    ServerUnsuitable,
)
from redjob.testing import ManualClock
from redjob.validate import LIMITS
from tests.support.opened import Opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.servers import TestServer

pytestmark = pytest.mark.server("valkey", "redis", "cluster")

HOUR = timedelta(hours=1)


@pytest.fixture
def client(opened: Opened) -> Iterator[Client]:
    with Client(opened.url, namespace=opened.namespace) as client:
        yield client


@pytest.fixture
def app(opened: Opened) -> Iterator[Redjob]:
    app = Redjob(opened.url, namespace=opened.namespace)
    yield app
    app.close()


# what is accepted


def test_a_job_that_is_due_is_in_its_stream_at_once(client: Client, opened: Opened) -> None:
    job = client.enqueue("email.send", {"user_id": "u1"}, queue="email")
    info = job.info()
    assert job.created
    assert info.state is job.state() is JobState.DISPATCHED
    assert (info.task, info.queue, info.tenant, info.priority) == (
        "email.send", "email", "default", 5,
    )  # fmt: skip
    assert info.payload == {"user_id": "u1"}
    assert opened.entries("email") == 1


def test_a_job_for_later_waits_in_due_with_its_very_time(client: Client) -> None:
    when = datetime.now(UTC) + timedelta(days=3, microseconds=1)
    info = client.enqueue_at(when, "t").info()
    assert info.state is JobState.SCHEDULED
    assert info.run_at_ms is not None
    assert 0 <= info.run_at_ms - when.timestamp() * 1000 <= 1


def test_a_past_time_is_due_at_once_and_kept_in_the_record(client: Client, opened: Opened) -> None:
    job = client.enqueue_at(datetime(2020, 1, 1, tzinfo=UTC), "t")
    assert job.state() is JobState.DISPATCHED
    assert opened.records()[job.id].run_at == 1_577_836_800_000


def test_a_delay_counts_on_redis_clock_however_wrong_the_clients_is(opened: Opened) -> None:
    with Client(opened.url, namespace=opened.namespace, clock=ManualClock(wall_ms=5)) as client:
        before_ms = opened.store.now_ms()
        info = client.enqueue_in(HOUR, "t").info()
        after_ms = opened.store.now_ms()
    assert info.run_at_ms is not None
    assert info.created_ms is not None
    # a ms on either side: two clocks, each rounded
    assert before_ms - 2 <= info.run_at_ms - 3_600_000 <= after_ms + 2
    assert before_ms - 2 <= info.created_ms <= after_ms + 2


def test_a_delay_of_nothing_is_now(client: Client) -> None:
    assert client.enqueue_in(0, "t").state() is JobState.DISPATCHED


def test_options_are_stored_with_the_job(client: Client, opened: Opened) -> None:
    job = client.enqueue(
        "t",
        queue="q",
        priority="low",
        tenant="acme",
        retry=Retry(max_attempts=2),
        timeout_s=5,
        expires_in=60,
    )
    record = opened.records()[job.id]
    assert (record.tenant, record.priority) == ("acme", 8)
    assert (record.options.max_attempts, record.options.timeout_s) == (2, 5)
    assert record.options.expires_at == record.created + 60_000


def test_a_job_without_arguments_has_an_empty_object(client: Client) -> None:
    assert client.enqueue("t").info().payload == {}
    assert client.enqueue("t", {}).info().payload == {}


@pytest.mark.parametrize(
    "payload",
    [
        {"text": "中文\u202e\r\n{p0}\x00", "n": -(1 << 63), "m": (1 << 64) - 1, "f": 1e-300},
        {"a": "x" * (LIMITS.payload_bytes - len(b'{"a":""}'))},
    ],
)
def test_text_and_numbers_come_back_as_they_were(client: Client, payload: dict[str, Any]) -> None:
    assert client.enqueue("t", payload).info().payload == payload


# how Redis is named


CONNECT: list[Callable[[str], Any]] = [
    str,
    lambda url: f"{url}?decode_responses=True&protocol=3",
    Redis.from_url,
    lambda url: Redis.from_url(url, decode_responses=True),
    aredis.Redis.from_url,
]


@pytest.mark.server("valkey", "redis")  # a client of one server
@pytest.mark.parametrize(
    "connect",
    CONNECT,
    ids=["url", "url that decodes", "client", "client that decodes", "async client"],
)
def test_a_url_or_any_redis_client_names_the_server(
    opened: Opened, connect: Callable[[str], Any]
) -> None:
    with Client(connect(opened.url), namespace=opened.namespace) as client:
        job = client.enqueue("t", {"a": "ü"})
        assert job.info().payload == {"a": "ü"}


@pytest.mark.parametrize(
    ("redis", "told"),
    [
        ("http://localhost", "redis_url: cannot be read"),
        ("localhost:6379", "redis_url: "),
        ("redis+sentinel://h1:1", "redis_url: names no service"),
        (7, "redis: is a int; pass a URL"),
        (None, "redis: is a NoneType"),
    ],
)
def test_what_names_no_server_is_refused_before_any_call(redis: Any, told: str) -> None:
    for make in (Client, Redjob):
        with pytest.raises(InvalidArgument, match=told):
            make(redis)


def test_a_refused_url_does_not_show_its_password() -> None:
    with pytest.raises(InvalidArgument) as caught:
        Client("redis://user:canary@host:port-that-is-none/0")
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("namespace", ["", "a b", "{x}", "n\r\n", "n\0", "\u202en", "x" * 129])
def test_a_bad_namespace_is_refused(namespace: str) -> None:
    for make in (Client, Redjob):
        with pytest.raises(InvalidArgument, match="namespace: "):
            make(namespace=namespace)


@pytest.mark.parametrize("partitions", [0, -1, 1025])
def test_an_impossible_number_of_partitions_is_refused(partitions: int) -> None:
    for make in (Client, Redjob):
        with pytest.raises(InvalidArgument, match="partitions: "):
            make(partitions=partitions)


def test_postgres_is_refused_until_there_is_some() -> None:
    with pytest.raises(InvalidArgument, match="postgres: is not supported yet; leave it out"):
        Redjob(postgres="postgresql://localhost")


def test_a_namespace_that_nobody_has_opened_says_how(server: TestServer, ns: str) -> None:
    with Client(server.url, namespace=ns) as client:
        with pytest.raises(NotReady, match="start `redjob scheduler`"):
            client.enqueue("t")
        with Opened(server.url, ns):
            assert client.enqueue("t").created


def test_another_number_of_partitions_than_the_namespace_has_is_refused(opened: Opened) -> None:
    with (
        Client(opened.url, namespace=opened.namespace, partitions=8) as client,
        pytest.raises(PartitionMismatch, match="8 was asked for but this namespace has 16"),
    ):
        client.enqueue("t")
    with Client(opened.url, namespace=opened.namespace, partitions=16) as client:
        client.enqueue("t")


def test_a_layout_of_another_version_is_refused(opened: Opened) -> None:
    opened.redis.hset(f"{opened.namespace}:meta", "layout", "999")
    with (
        Client(opened.url, namespace=opened.namespace) as client,
        pytest.raises(ServerUnsuitable, match="has layout 999"),
    ):
        client.enqueue("t")


# what is refused stores nothing


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(70):
        value = [value]
    return value


FAR = datetime.now(UTC) + timedelta(seconds=LIMITS.horizon_s) + HOUR

BAD: list[tuple[str, Callable[[Client], Any]]] = [
    ("when", lambda c: c.enqueue_at(datetime(2030, 1, 1), "t")),  # noqa: DTZ001
    ("when", lambda c: c.enqueue_at("2030-01-01T00:00:00Z", "t")),  # type: ignore[arg-type]
    ("run_at", lambda c: c.enqueue_at(FAR, "t")),
    ("delay", lambda c: c.enqueue_in(math.nan, "t")),
    ("delay", lambda c: c.enqueue_in(math.inf, "t")),
    ("delay", lambda c: c.enqueue_in(-1, "t")),
    ("delay", lambda c: c.enqueue_in(timedelta(seconds=-1), "t")),
    ("delay", lambda c: c.enqueue_in(1e12, "t")),
    ("task", lambda c: c.enqueue("a b")),
    ("task", lambda c: c.enqueue("{t}")),
    ("queue", lambda c: c.enqueue("t", queue="q\0")),
    ("queue", lambda c: c.enqueue("t", queue="q\r\nDEL x")),
    ("tenant", lambda c: c.enqueue("t", tenant="\u202eacme")),
    ("tenant", lambda c: c.enqueue("t", tenant="ü")),
    ("priority", lambda c: c.enqueue("t", priority=10)),
    ("priority", lambda c: c.enqueue("t", priority=-1)),
    ("priority", lambda c: c.enqueue("t", priority="urgent")),
    ("idempotency_key", lambda c: c.enqueue("t", idempotency_key="x" * 256)),
    ("idempotency_key", lambda c: c.enqueue("t", idempotency_key="\ud800")),
    ("timeout_s", lambda c: c.enqueue("t", timeout_s=math.nan)),
    ("expires_at", lambda c: c.enqueue("t", expires_at=datetime(2030, 1, 1))),  # noqa: DTZ001
    ("expires_at", lambda c: c.enqueue_in(60, "t", expires_at=datetime.now(UTC))),
    ("payload", lambda c: c.enqueue("t", [1])),  # type: ignore[arg-type]
    ("payload", lambda c: c.enqueue("t", {"a": "x" * LIMITS.payload_bytes})),
    ("payload", lambda c: c.enqueue("t", {"a": deep()})),
    ("payload.a", lambda c: c.enqueue("t", {"a": {1, 2}})),
    ("payload.a", lambda c: c.enqueue("t", {"a": math.nan})),
    ("payload.a", lambda c: c.enqueue("t", {"a": b"\x00\xff"})),
    ("payload.a", lambda c: c.enqueue("t", {"a": {1: 2}})),
    ("payload.a", lambda c: c.enqueue("t", {"a": 1 << 64})),
    ("payload.a", lambda c: c.enqueue("t", {"a": "\ud800"})),
]


@pytest.mark.parametrize(("field", "call"), BAD)
def test_bad_input_names_its_field_and_a_remedy_and_stores_nothing(
    client: Client, opened: Opened, field: str, call: Callable[[Client], Any]
) -> None:
    before = opened.seqs()
    with pytest.raises(InvalidArgument) as caught:
        call(client)
    assert caught.value.field == field
    assert caught.value.remedy
    assert opened.records() == {}
    assert opened.seqs() == before


@pytest.mark.parametrize(
    "job_id",
    [
        "",
        "x",
        "01A22A3B-47F3-794C-8BD1-9640C3B23582",
        "01a22a3b-47f3-794c-8bd1-9640c3b2f582",
        "01a22a3b-47f3-794c-8bd1-9640c3b23582\r\n",
        "{01a22a3b-47f3-794c-8bd1-9640c3b2358}",
    ],
)
def test_what_is_no_job_id_is_refused_everywhere(client: Client, job_id: str) -> None:
    when = datetime.now(UTC) + HOUR
    calls: list[Callable[[str], Any]] = [
        client.job,
        client.info,
        client.state,
        client.result,
        client.cancel,
        client.replay,
        lambda found: client.reschedule(found, when),
    ]
    for call in calls:
        with pytest.raises(InvalidArgument, match="job_id: "):
            call(job_id)


# the task-bound way


def test_a_task_is_called_and_enqueued_with_the_same_arguments(app: Redjob, opened: Opened) -> None:
    @app.task(queue="email", retry=Retry(max_attempts=3), priority="high", timeout_s=30)
    def send(user_id: str, template: str = "welcome") -> str:
        """Send it."""
        return f"{user_id}:{template}"

    assert send("u1") == "u1:welcome"
    assert send.__doc__ == "Send it."
    job = send.enqueue("u1", template="bye")
    record = opened.records()[job.id]
    assert (record.task, record.queue, record.priority) == (f"{__name__}.send", "email", 2)
    assert (record.options.max_attempts, record.options.timeout_s) == (3, 30)
    assert app.tasks[send.name].decode_arguments(record.payload) == {
        "user_id": "u1",
        "template": "bye",
    }


def test_a_bare_decorator_takes_the_defaults(app: Redjob) -> None:
    @app.task
    async def run() -> None: ...

    task = app.tasks[f"{__name__}.run"]
    assert (task.queue, task.is_async, run.name) == ("default", True, task.name)


def test_options_make_a_copy_and_leave_the_rest(app: Redjob, opened: Opened) -> None:
    @app.task(name="t", queue="email", timeout_s=30, tenant="acme")
    def run(n: int) -> None: ...

    special = run.options(idempotency_key="k", priority="high").options(tenant="other")
    keyed, plain_job = special.enqueue(1), run.enqueue(1)
    record = opened.records()[keyed.id]
    assert (record.queue, record.priority, record.tenant) == ("email", 2, "other")
    assert (record.options.key, record.options.timeout_s) == ("k", 30)
    plain = opened.records()[plain_job.id]
    assert (plain.priority, plain.tenant, plain.options.key) == (5, "acme", None)


def test_a_task_goes_to_a_later_time_by_moment_or_delay(app: Redjob) -> None:
    @app.task(name="t")
    def run(when: str, delay: str) -> None:
        """Its arguments are named as those of enqueue_at and enqueue_in."""

    moment = datetime.now(UTC) + HOUR
    assert run.enqueue_at(moment, when="a", delay="b").state() is JobState.SCHEDULED
    assert run.enqueue_in(HOUR, "a", delay="b").info().payload == {"when": "a", "delay": "b"}


def test_a_name_is_taken_once(app: Redjob) -> None:
    def run() -> None: ...

    app.task(name="t")(run)
    with pytest.raises(InvalidArgument, match="name: 't' is registered already; pass another"):
        app.task(name="t")(run)


@pytest.mark.parametrize(
    ("options", "field"),
    [({"queue": "a b"}, "queue"), ({"name": "{t}"}, "task"), ({"timeout_s": -1}, "timeout_s")],
)
def test_bad_options_of_a_task_are_refused_when_it_is_registered(
    app: Redjob, options: Any, field: str
) -> None:
    def run() -> None: ...

    with pytest.raises(InvalidArgument) as caught:
        app.task(**options)(run)
    assert caught.value.field == field
    assert app.tasks == {}


def test_an_app_comes_from_the_environment(opened: Opened) -> None:
    app = Redjob.from_env(
        {
            "REDJOB_REDIS_URL": opened.url,
            "REDJOB_NAMESPACE": opened.namespace,
            "REDJOB_PARTITIONS": "16",
        }
    )
    assert (app.namespace, app.partitions) == (opened.namespace, 16)
    app.client.enqueue("t")
    app.close()
    assert Redjob.from_env({}).namespace == "redjob"
    with pytest.raises(InvalidArgument, match="REDJOB_PARTITIONS: is 'many'; use a number"):
        Redjob.from_env({"REDJOB_PARTITIONS": "many"})


# many at once


def test_many_jobs_are_answered_one_by_one(client: Client, opened: Opened) -> None:
    when = datetime.now(UTC) + HOUR
    results = client.enqueue_many(
        [
            JobSpec("t", {"n": 0}, queue="q"),
            JobSpec("t", {"n": {1}}, queue="q"),
            JobSpec("t", {"n": 2}, queue="q", run_at=when),
            JobSpec("t", {"n": 3}, queue="q", run_in=HOUR),
            JobSpec("bad name"),
            JobSpec("t", run_at=FAR),
            "no spec",  # type: ignore[list-item]
            JobSpec("t", {"n": 7}, queue="q", idempotency_key="k"),
            JobSpec("t", {"n": 7}, queue="q", idempotency_key="k"),
            JobSpec("t", {"n": 9}, queue="q", idempotency_key="k"),
        ]
    )
    assert [type(result.error).__name__ for result in results] == [
        "NoneType", "InvalidArgument", "NoneType", "NoneType", "InvalidArgument",
        "InvalidArgument", "InvalidArgument", "NoneType", "NoneType", "IdempotencyConflict",
    ]  # fmt: skip
    jobs = [result.job for result in results if result.job]
    assert [job.state() for job in jobs] == [
        JobState.DISPATCHED,
        JobState.SCHEDULED,
        JobState.SCHEDULED,
        JobState.DISPATCHED,
        JobState.DISPATCHED,
    ]
    assert [job.created for job in jobs] == [True, True, True, True, False]
    assert len(opened.records()) == 4


def test_thousands_of_jobs_are_all_there_in_the_order_they_were_given(
    app: Redjob, opened: Opened
) -> None:
    @app.task(name="t", queue="q")
    def run(n: int) -> None: ...

    results = run.enqueue_many((n,) for n in range(3210))
    records = opened.records()
    payloads = [bytes(records[result.job.id].payload) for result in results if result.job]
    assert payloads == [b'{"n":%d}' % n for n in range(3210)]
    assert len({id_[-4:] for id_ in records}) > 1000
    assert opened.entries("q") == 3210


def test_nothing_is_sent_for_no_jobs(client: Client, opened: Opened) -> None:
    before = opened.seqs()
    assert client.enqueue_many([]) == []
    assert opened.seqs() == before
