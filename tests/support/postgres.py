"""The Postgres servers that tests run on: shared ones, with a database a test, and a test's own."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol, Self, TypeVar
from urllib.parse import urlsplit

import asyncpg
import psutil

from redjob.embedded import EmbeddedPostgres, PostgresBinaries, all_postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from pathlib import Path

VERSIONS = (18, 15)  # the newest and the oldest that redjob supports; those here are run on
_REPLY_S = 60.0
T = TypeVar("T")


def kind_of(version: int) -> str:
    """What a version is called in the summary of a run."""
    return f"postgres {version}"


def find_versions() -> dict[int, PostgresBinaries]:
    """The wanted versions that this machine has."""
    found: dict[int, PostgresBinaries] = {}
    for binaries in all_postgres():
        found.setdefault(binaries.major, binaries)
    return {version: found[version] for version in VERSIONS if version in found}


class OwnPostgres(EmbeddedPostgres):
    """A server of one test, which may also make it hang."""

    _paused: tuple[psutil.Process, ...] = ()

    def pause(self) -> None:
        """Stop every process of it by SIGSTOP: it keeps its connections and says no word."""
        server = psutil.Process(self.pid)
        self._paused = (server, *server.children())
        for process in self._paused:
            process.suspend()

    def resume(self) -> None:
        """Let it go on."""
        for process in self._paused:
            if process.is_running():
                process.resume()
        self._paused = ()

    def stop(self, *, timeout_s: float = 10.0) -> None:
        """End it, also while it hangs."""
        self.resume()
        super().stop(timeout_s=timeout_s)

    def kill(self) -> None:
        """End it by SIGKILL; what is left of it wakes up and sees that."""
        super().kill()
        self.resume()


class OwnPostgresFactory(Protocol):
    """Starts a Postgres for one test alone; takes about a second."""

    def __call__(
        self,
        version: int | None = None,
        *,
        durable: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> OwnPostgres:
        """Start a server with an empty database; it is stopped when the test ends.

        It survives a kill as it is; `durable` makes it wait for the disk as well.
        """
        ...


class OwnPostgresServers:
    """The Postgres servers of one test."""

    def __init__(
        self,
        versions: dict[int, PostgresBinaries],
        directory: Path,
        note: Callable[[str], None],
    ) -> None:
        """Take what there is; `note` hears the kind of each server that is started."""
        self._versions = versions
        self._directory = directory
        self._note = note
        self._numbers = itertools.count(1)
        self._stack = ExitStack()

    def __call__(
        self,
        version: int | None = None,
        *,
        durable: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> OwnPostgres:
        """Start a server; without a version the newest."""
        chosen = next(iter(self._versions)) if version is None else version
        directory = self._directory / f"postgres-{chosen}-{next(self._numbers)}"
        server = OwnPostgres(
            directory, binaries=self._versions[chosen], durable=durable, settings=settings
        )
        self._note(kind_of(chosen))
        return self._stack.enter_context(server)

    def close(self) -> None:
        """Stop those that still run."""
        self._stack.close()


class PostgresPool:
    """Postgres servers for a whole run of one test process, each started when first asked for."""

    def __init__(self, versions: dict[int, PostgresBinaries], directory: Path) -> None:
        self._versions = versions
        self._directory = directory
        self._running: dict[int, SharedPostgres] = {}
        self._stack = ExitStack()

    def get(self, version: int) -> SharedPostgres:
        """The shared server of this version."""
        if version not in self._running:
            server = EmbeddedPostgres(
                self._directory / f"postgres-{version}",
                binaries=self._versions[version],
                durable=False,
            )
            self._stack.enter_context(server)
            shared = self._stack.enter_context(SharedPostgres(server.url))
            self._running[version] = shared
        return self._running[version]

    def close(self) -> None:
        """Stop what was started."""
        self._stack.close()


class SharedPostgres:
    """Makes databases on a server, and drops them.

    Fixtures are plain functions for tests of either kind, so its connection has a loop of its own.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._connection = self._wait(asyncpg.connect(self._url))
        return self

    def __exit__(self, *_exc: object) -> None:
        assert self._connection is not None
        self._wait(self._connection.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def make(self) -> str:
        """Make an empty database; return its URL."""
        name = f"test_{secrets.token_hex(8)}"
        self._do(f"CREATE DATABASE {name} TEMPLATE template0")
        return urlsplit(self._url)._replace(path=f"/{name}").geturl()

    def drop(self, url: str) -> None:
        """Drop a database that `make` made, whoever is still connected to it."""
        self._do(f"DROP DATABASE {urlsplit(url).path[1:]} WITH (FORCE)")

    def _do(self, statement: str) -> None:
        assert self._connection is not None
        self._wait(self._connection.execute(statement))

    def _wait(self, work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_REPLY_S)
