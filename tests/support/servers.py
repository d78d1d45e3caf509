"""The servers that tests run on: which programs there are, shared ones, and ones of a test's own."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from fakeredis import TcpFakeServer

from redjob.embedded import EmbeddedServer, find_server
from tests.support.cluster import ClusterNodes
from tests.support.sentinel import SentinelServers

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

ProgramKind = Literal["valkey", "redis"]
ServerKind = Literal["valkey", "redis", "fakeredis", "cluster"]

# A shared server must not be emptied: the next test's keys, or another module's, would go too.
_SHARED_ARGS = ("--rename-command", "FLUSHALL", "", "--rename-command", "FLUSHDB", "")
_VERSION = re.compile(r"^(Valkey|Redis) server v=(\S+)")


@dataclass(frozen=True, slots=True)
class Program:
    """A server program of this machine."""

    kind: ProgramKind
    version: str
    path: Path


@dataclass(frozen=True, slots=True)
class TestServer:
    """A server that is up and that other tests use too: keep to the keys of your `ns`."""

    __test__ = False

    kind: ServerKind
    version: str
    url: str
    nodes: ClusterNodes | None = None

    @property
    def cluster(self) -> ClusterNodes:
        """The nodes behind kind `cluster`: look, but do not move, kill or empty them."""
        assert self.nodes is not None, f"{self.kind} is no cluster"
        return self.nodes


class OwnServerFactory(Protocol):
    """Starts a server for one test alone."""

    def __call__(
        self,
        kind: ProgramKind | None = None,
        *,
        appendonly: bool = True,
        extra_args: Sequence[str] = (),
    ) -> EmbeddedServer:
        """Start a server on an empty directory; it is stopped when the test ends."""
        ...


class OwnClusterFactory(Protocol):
    """Starts a cluster for one test alone; takes about 2.5 s."""

    def __call__(
        self,
        kind: ProgramKind | None = None,
        *,
        primaries: int = 3,
        extra_args: Sequence[str] = (),
    ) -> ClusterNodes:
        """Start primaries with a replica each; they are ended with the test."""
        ...


class OwnSentinelFactory(Protocol):
    """Starts a primary and a replica under three sentinels for one test alone."""

    def __call__(
        self, kind: ProgramKind | None = None, *, extra_args: Sequence[str] = ()
    ) -> SentinelServers:
        """Start them; they are ended with the test."""
        ...


def find_programs() -> dict[ProgramKind, Program]:
    """The first program of each kind: `redjob.embedded`'s choice, then the PATH."""
    chosen = find_server()
    candidates = [chosen.path] if chosen else []
    on_path = (shutil.which(name) for name in ("valkey-server", "redis-server"))
    candidates += [Path(found) for found in on_path if found]
    programs: dict[ProgramKind, Program] = {}
    for path in candidates:
        program = _identify(path)
        if program is not None:
            programs.setdefault(program.kind, program)
    return programs


class ServerPool:
    """Servers for a whole run of one test process, each started when first asked for."""

    def __init__(self, programs: dict[ProgramKind, Program], directory: Path) -> None:
        self._programs = programs
        self._directory = directory
        self._running: dict[ServerKind, TestServer] = {}
        self._stack = ExitStack()

    def get(self, kind: ServerKind) -> TestServer:
        """The shared server of this kind."""
        if kind not in self._running:
            self._running[kind] = self._start(kind)
        return self._running[kind]

    def close(self) -> None:
        """Stop what was started."""
        self._stack.close()

    def _start(self, kind: ServerKind) -> TestServer:
        if kind == "fakeredis":
            return TestServer(kind, "", self._stack.enter_context(_fakeredis_server()))
        if kind == "cluster":
            return self._start_cluster()
        program = self._programs[kind]
        server = EmbeddedServer(
            self._directory / kind,
            binary=program.path,
            appendonly=False,
            extra_args=_SHARED_ARGS,
        )
        self._stack.enter_context(server)
        return TestServer(kind, program.version, server.url)

    def _start_cluster(self) -> TestServer:
        program = first_program(self._programs)
        nodes = ClusterNodes(self._directory / "cluster", program.path, extra_args=_SHARED_ARGS)
        self._stack.enter_context(nodes)
        return TestServer("cluster", program.version, nodes.url, nodes)


def first_program(programs: dict[ProgramKind, Program]) -> Program:
    """What is started where no kind is asked for: Valkey, unless REDJOB_SERVER names another."""
    return next(iter(programs.values()))


class OwnServers:
    """The servers of one test."""

    def __init__(
        self,
        programs: dict[ProgramKind, Program],
        directory: Path,
        note: Callable[[str], None],
    ) -> None:
        """Take what there is; `note` hears the kind of each server that is started."""
        self._programs = programs
        self._directory = directory
        self._note = note
        self._numbers = itertools.count(1)
        self._stack = ExitStack()

    def __call__(
        self,
        kind: ProgramKind | None = None,
        *,
        appendonly: bool = True,
        extra_args: Sequence[str] = (),
    ) -> EmbeddedServer:
        """Start a server; without a kind whichever this machine has, Valkey first."""
        program = self._program(kind)
        server = EmbeddedServer(
            self._place(program.kind),
            binary=program.path,
            appendonly=appendonly,
            extra_args=extra_args,
        )
        self._note(program.kind)
        return self._stack.enter_context(server)

    def cluster(
        self,
        kind: ProgramKind | None = None,
        *,
        primaries: int = 3,
        extra_args: Sequence[str] = (),
    ) -> ClusterNodes:
        """Start a cluster."""
        program = self._program(kind).path
        self._note("cluster")
        return self._stack.enter_context(
            ClusterNodes(
                self._place("cluster"), program, primaries=primaries, extra_args=extra_args
            )
        )

    def sentinel(
        self, kind: ProgramKind | None = None, *, extra_args: Sequence[str] = ()
    ) -> SentinelServers:
        """Start a primary, a replica and three sentinels."""
        program = self._program(kind).path
        self._note("sentinel")
        return self._stack.enter_context(
            SentinelServers(self._place("sentinel"), program, extra_args=extra_args)
        )

    def close(self) -> None:
        """Stop those that still run."""
        self._stack.close()

    def _program(self, kind: ProgramKind | None) -> Program:
        return self._programs[kind] if kind else first_program(self._programs)

    def _place(self, name: str) -> Path:
        return self._directory / f"{name}-{next(self._numbers)}"


def _identify(path: Path) -> Program | None:
    """What a program says it is: some systems install Valkey under Redis' name."""
    told = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    match = _VERSION.match(told.stdout)
    if match is None:
        return None
    return Program("valkey" if match[1] == "Valkey" else "redis", match[2], path)


@contextmanager
def _fakeredis_server() -> Generator[str]:
    server = TcpFakeServer(("127.0.0.1", 0), server_type="redis", server_version=(7, 0))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    host, port = server.server_address[:2]
    try:
        yield f"redis://{host!s}:{port}/0"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
