"""When a call returns: once the server has it, or once a replica has it too."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from redjob import (
    AsyncClient,
    Client,
    InvalidArgument,
    JobSpec,
    JobState,
    NotReplicated,
    Redjob,
    StoreUnavailable,
)
from redjob.embedded.ports import free_ports
from redjob.ids import keyed_job_id, slot_of
from tests.support.opened import Opened

if TYPE_CHECKING:
    from tests.support.cluster import ClusterNodes
    from tests.support.servers import OwnClusterFactory, OwnServerFactory


def replicas_have(cluster: ClusterNodes, ns: str, job_id: str) -> bool:
    """Whether the record is at the replica, at this very moment."""
    keys = [
        key
        for primary in cluster.primaries()
        for replica in cluster.replicas_of(primary)
        for key in replica.redis.keys(f"{ns}:*job:{job_id}")
    ]
    return len(keys) == 1


@pytest.mark.slow
async def test_a_replicated_call_returns_when_a_replica_has_it_and_else_says_so(
    own_cluster: OwnClusterFactory, ns: str
) -> None:
    cluster = own_cluster()
    with (
        Opened(cluster.url, ns) as opened,
        Client(cluster.url, namespace=ns, ack="replicated", deadline_s=2) as client,
    ):
        for _ in range(10):
            assert replicas_have(cluster, ns, client.enqueue("t").id)
        results = client.enqueue_many([JobSpec("t")] * 5)
        assert all(result.job for result in results)

        part = opened.keys.parts[0]
        primary = cluster.primary_of(part.slot)
        (replica,) = cluster.replicas_of(primary)
        here = next(
            job for job in iter(lambda: client.enqueue_in(60, "t"), None)
            if opened.keys.of_job(job.id) is part
        )  # fmt: skip
        replica.pause()
        started = time.monotonic()
        with pytest.raises(NotReplicated, match="0 of 1 replicas") as caught:
            here.cancel()
        assert time.monotonic() - started < 5
        assert caught.value.stored == "memory"
        assert client.state(here.id) is JobState.CANCELLED

        key = _key_in(ns, part.index, len(opened.keys.parts))
        with pytest.raises(NotReplicated) as about:
            client.enqueue("t", idempotency_key=key)
        assert about.value.job_id is not None
        assert client.state(about.value.job_id) is JobState.DISPATCHED
        [result] = client.enqueue_many([JobSpec("t", idempotency_key=key)])
        assert isinstance(result.error, NotReplicated)
        assert result.error.job_id == about.value.job_id
        assert client.enqueue("t", idempotency_key=key, ack="memory").id == about.value.job_id
        async with AsyncClient(cluster.url, namespace=ns, ack="replicated", deadline_s=2) as other:
            with pytest.raises(NotReplicated):
                await other.enqueue("t", idempotency_key=key)
        replica.resume()
        deadline = time.monotonic() + 20
        while True:
            try:
                assert not client.enqueue("t", idempotency_key=key).created
                break
            except NotReplicated:
                assert time.monotonic() < deadline
        assert replicas_have(cluster, ns, about.value.job_id)


def _key_in(ns: str, index: int, partitions: int) -> str:
    """An idempotency key whose job belongs to a partition."""
    keys = (f"k{number}" for number in range(10_000))
    return next(
        key
        for key in keys
        if slot_of(keyed_job_id(ns, "default", key)) * partitions // 16384 == index
    )


@pytest.mark.parametrize(
    ("ack", "told"), [("durable", "needs Postgres"), ("disk", "use 'memory'"), (7, "is 7")]
)
def test_an_ack_that_there_is_not_is_refused(ack: Any, told: str) -> None:
    for make in (Client, Redjob):
        with pytest.raises(InvalidArgument, match=told):
            make(ack=ack)
    with pytest.raises(InvalidArgument, match=told):
        Client().enqueue("t", ack=ack)


async def test_a_primary_that_is_replaced_before_it_can_say_leaves_a_call_unknown(
    own_server: OwnServerFactory, ns: str
) -> None:
    server = own_server()
    (nobody,) = free_ports(1)
    with (
        Opened(server.url, ns) as opened,
        Client(server.url, namespace=ns, ack="replicated", deadline_s=0.5) as client,
    ):
        async with AsyncClient(server.url, namespace=ns, ack="replicated", deadline_s=0.5) as other:
            client.enqueue("t", ack="memory")  # connects
            await other.enqueue("t", ack="memory")
            # as a primary at the moment of its demotion: the call is done, and WAIT is refused
            opened.redis.config_set("replica-read-only", "no")
            opened.redis.replicaof("127.0.0.1", nobody)
            with pytest.raises(StoreUnavailable) as told:
                client.enqueue("t")
            assert told.value.outcome == "unknown"
            with pytest.raises(StoreUnavailable) as told:
                await other.enqueue("t")
            assert told.value.outcome == "unknown"
        opened.redis.replicaof("NO", "ONE")
