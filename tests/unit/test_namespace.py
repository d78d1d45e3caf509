"""The namespace's meta: who decides the number of partitions, and who is turned away."""

from __future__ import annotations

import pytest

from redjob.calls.owner import LAYOUT
from redjob.errors import InvalidArgument, NotReady, PartitionMismatch, ServerUnsuitable
from redjob.store.namespace import (
    NamespaceMeta,
    default_partitions,
    keyspace_from,
    namespace_query,
    open_query,
)
from redjob.store.settings import settings_from_url


def test_meta_that_is_not_there_is_read_as_none() -> None:
    query = namespace_query("jobs")
    assert query.commands == [("HMGET", "jobs:meta", "partitions", "layout")]
    assert query.read([[None, None]]) == ("jobs", None, None)
    assert query.read([[b"16", b"1"]]) == ("jobs", 16, "1")


def test_opening_writes_only_what_is_missing_and_reads_what_was_decided() -> None:
    query = open_query("jobs", 16)
    assert [command[0] for command in query.commands] == ["HSETNX", "HSETNX", "HMGET"]
    assert query.read([0, 0, [b"4", b"1"]]) == ("jobs", 4, "1")


@pytest.mark.parametrize("partitions", [0, -1, 1025])
def test_no_namespace_is_opened_with_a_number_that_does_not_work(partitions: int) -> None:
    with pytest.raises(InvalidArgument):
        open_query("jobs", partitions)


def test_a_cluster_gets_more_partitions_than_one_server() -> None:
    assert default_partitions(settings_from_url("redis://h")) == 16
    assert default_partitions(settings_from_url("redis+sentinel://h/m")) == 16
    assert default_partitions(settings_from_url("redis+cluster://h")) == 64


@pytest.mark.parametrize("asked", [None, 4], ids=["not asked", "the same"])
def test_the_keys_of_an_open_namespace(asked: int | None) -> None:
    keys = keyspace_from("jobs", NamespaceMeta("jobs", 4, LAYOUT), asked)
    assert (keys.namespace, len(keys.parts)) == ("jobs", 4)


def test_a_namespace_that_nobody_opened_is_not_ready() -> None:
    with pytest.raises(NotReady, match="'jobs'"):
        keyspace_from("jobs", NamespaceMeta("jobs", None, None), None)


def test_another_number_of_partitions_is_refused_by_both_numbers() -> None:
    with pytest.raises(PartitionMismatch) as caught:
        keyspace_from("jobs", NamespaceMeta("jobs", 4, LAYOUT), 16)
    assert (caught.value.asked, caught.value.stored) == (16, 4)


@pytest.mark.parametrize("layout", ["2", None])
def test_another_layout_is_refused_before_the_partitions_are_looked_at(layout: str | None) -> None:
    with pytest.raises(ServerUnsuitable, match="layout"):
        keyspace_from("jobs", NamespaceMeta("jobs", 4, layout), 16)
