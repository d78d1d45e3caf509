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

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

ServerKind = Literal["valkey", "redis", "fakeredis"]

# A shared server must not be emptied: the next test's keys, or another module's, would go too.
_SHARED_ARGS = ("--rename-command", "FLUSHALL", "", "--rename-command", "FLUSHDB", "")
_VERSION = re.compile(r"^(Valkey|Redis) server v=(\S+)")


@dataclass(frozen=True, slots=True)
class Program:
    """A server program of this machine."""

    kind: ServerKind
    version: str
    path: Path


@dataclass(frozen=True, slots=True)
class TestServer:
    """A server that is up and that other tests use too: keep to the keys of your `ns`."""

    __test__ = False

    kind: ServerKind
    version: str
    url: str


class OwnServerFactory(Protocol):
    """Starts a server for one test alone."""

    def __call__(
        self,
        kind: ServerKind | None = None,
        *,
        appendonly: bool = True,
        extra_args: Sequence[str] = (),
    ) -> EmbeddedServer:
        """Start a server on an empty directory; it is stopped when the test ends."""
        ...


def find_programs() -> dict[ServerKind, Program]:
    """The first program of each kind: `redjob.embedded`'s choice, then the PATH."""
    chosen = find_server()
    candidates = [chosen.path] if chosen else []
    on_path = (shutil.which(name) for name in ("valkey-server", "redis-server"))
    candidates += [Path(found) for found in on_path if found]
    programs: dict[ServerKind, Program] = {}
    for path in candidates:
        program = _identify(path)
        if program is not None:
            programs.setdefault(program.kind, program)
    return programs


class ServerPool:
    """Servers for a whole run of one test process, each started when first asked for."""

    def __init__(self, programs: dict[ServerKind, Program], directory: Path) -> None:
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
        program = self._programs[kind]
        server = EmbeddedServer(
            self._directory / kind,
            binary=program.path,
            appendonly=False,
            extra_args=_SHARED_ARGS,
        )
        self._stack.enter_context(server)
        return TestServer(kind, program.version, server.url)


class OwnServers:
    """The servers of one test."""

    def __init__(
        self,
        programs: dict[ServerKind, Program],
        directory: Path,
        note: Callable[[ServerKind], None],
    ) -> None:
        """Take what there is; `note` hears the kind of each server that is started."""
        self._programs = programs
        self._directory = directory
        self._note = note
        self._numbers = itertools.count(1)
        self._stack = ExitStack()

    def __call__(
        self,
        kind: ServerKind | None = None,
        *,
        appendonly: bool = True,
        extra_args: Sequence[str] = (),
    ) -> EmbeddedServer:
        """Start a server; without a kind whichever this machine has, Valkey first."""
        program = self._programs[kind] if kind else next(iter(self._programs.values()))
        server = EmbeddedServer(
            self._directory / f"{program.kind}-{next(self._numbers)}",
            binary=program.path,
            appendonly=appendonly,
            extra_args=extra_args,
        )
        self._note(program.kind)
        return self._stack.enter_context(server)

    def close(self) -> None:
        """Stop those that still run."""
        self._stack.close()


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
