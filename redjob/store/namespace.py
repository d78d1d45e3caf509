"""The namespace's own meta: how many partitions it has, in which layout."""

from __future__ import annotations

from typing import Any, NamedTuple

from redjob.calls.owner import LAYOUT
from redjob.calls.reads import Query
from redjob.errors import NotReady, PartitionMismatch, ServerUnsuitable
from redjob.keys import Keyspace, meta_key
from redjob.partitions import validate_partitions
from redjob.store.settings import StoreSettings

DEFAULT_PARTITIONS = 16  # on a single Redis
CLUSTER_PARTITIONS = 64


class NamespaceMeta(NamedTuple):
    """partitions and layout, None where nothing is stored yet."""

    namespace: str
    partitions: int | None
    layout: str | None


def namespace_query(namespace: str) -> Query[NamespaceMeta]:
    """Read the namespace's meta."""

    def read(raw: list[Any]) -> NamespaceMeta:
        partitions, layout = raw[0]
        return NamespaceMeta(
            namespace, int(partitions) if partitions else None, layout.decode() if layout else None
        )

    return Query(None, [("HMGET", meta_key(namespace), "partitions", "layout")], read)


def open_query(namespace: str, partitions: int) -> Query[NamespaceMeta]:
    """Write the namespace's meta where it is missing (schedulers only), and read it.

    HSETNX: of two schedulers that start at once one decides, and both read what it decided.
    """
    key = meta_key(namespace)
    read = namespace_query(namespace)
    commands = [
        ("HSETNX", key, "partitions", validate_partitions(partitions)),
        ("HSETNX", key, "layout", LAYOUT),
        *read.commands,
    ]
    return Query(None, commands, lambda raw: read.read(raw[2:]))  # type: ignore[arg-type]


def default_partitions(settings: StoreSettings) -> int:
    """Return how many partitions a new namespace gets."""
    return CLUSTER_PARTITIONS if settings.topology == "cluster" else DEFAULT_PARTITIONS


def keyspace_from(namespace: str, meta: NamespaceMeta, asked: int | None) -> Keyspace:
    """Return the keys of an opened namespace.

    Raises NotReady, PartitionMismatch, ServerUnsuitable (a layout of another version).
    """
    if meta.partitions is None:
        raise NotReady(namespace)
    if meta.layout != LAYOUT:
        raise ServerUnsuitable(
            f"namespace {namespace!r} has layout {meta.layout}, this redjob speaks {LAYOUT}; "
            "use the version of redjob that wrote it"
        )
    if asked is not None and asked != meta.partitions:
        raise PartitionMismatch(asked, meta.partitions)
    return Keyspace(namespace, meta.partitions)
