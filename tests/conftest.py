"""Fixtures that every test may use, above all real servers, and the summary of a run."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

import pytest

from tests.support.postgres import (
    VERSIONS,
    OwnPostgresServers,
    PostgresPool,
    find_versions,
    kind_of,
)
from tests.support.servers import (
    OwnServers,
    Program,
    ProgramKind,
    ServerKind,
    ServerPool,
    TestServer,
    find_programs,
    first_program,
)
from tests.support.summary import ON_SERVER, Summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redjob.embedded import PostgresBinaries
    from tests.support.postgres import OwnPostgresFactory
    from tests.support.servers import OwnClusterFactory, OwnSentinelFactory, OwnServerFactory

_DEFAULT_KINDS: tuple[ServerKind, ...] = ("valkey", "redis")
_PROGRAMS = pytest.StashKey[dict[ProgramKind, Program]]()
_POSTGRES = pytest.StashKey[dict[int, "PostgresBinaries"]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the choice of servers and a file for the summary."""
    group = parser.getgroup("redjob")
    group.addoption(
        "--server",
        action="append",
        choices=get_args(ServerKind),
        help="run tests that need a server on this kind only (may be repeated)",
    )
    group.addoption(
        "--postgres",
        action="append",
        type=int,
        choices=VERSIONS,
        help="run tests that need Postgres on this version only (may be repeated)",
    )
    group.addoption("--summary-json", metavar="FILE", help="write the figures of the run there")


def pytest_configure(config: pytest.Config) -> None:
    """Find the servers once; refuse to run without Redis where it is required."""
    programs = config.stash[_PROGRAMS] = find_programs()
    if os.environ.get("REDJOB_REQUIRE_REDIS") == "1" and "redis" not in programs:
        message = "REDJOB_REQUIRE_REDIS=1 but there is no redis-server on the PATH"
        raise pytest.UsageError(message)
    chosen: list[int] = config.getoption("--postgres") or list(VERSIONS)
    here = find_versions()
    config.stash[_POSTGRES] = {version: here[version] for version in here if version in chosen}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes `server` once on each kind there is, and on each Postgres likewise."""
    if "server" in metafunc.fixturenames:
        _on_servers(metafunc)
    if "postgres_version" in metafunc.fixturenames:
        _on_versions(metafunc)


def _on_servers(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("server")
    wanted = marker.args if marker else _DEFAULT_KINDS
    unknown = set(wanted) - set(get_args(ServerKind))
    if unknown:
        message = f"{metafunc.definition.nodeid}: no such server: {', '.join(sorted(unknown))}"
        raise pytest.UsageError(message)
    available = _available_kinds(metafunc.config)
    kinds = [kind for kind in wanted if kind in available]
    reason = f"no {' or '.join(wanted)} server here (or not chosen by --server)"
    missing = pytest.param("missing", marks=pytest.mark.skip(reason=reason))
    metafunc.parametrize("server", kinds or [missing], indirect=True, scope="session")


def _on_versions(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("postgres")
    wanted = [int(name) for name in marker.args] if marker else list(VERSIONS)
    if not set(wanted) <= set(VERSIONS):
        message = f"{metafunc.definition.nodeid}: marked for a Postgres that no run has: {wanted}"
        raise pytest.UsageError(message)
    versions = [version for version in wanted if version in metafunc.config.stash[_POSTGRES]]
    reason = f"no Postgres {' or '.join(map(str, wanted))} here (or not chosen by --postgres)"
    missing = pytest.param(0, marks=pytest.mark.skip(reason=reason))
    ids = [f"postgres{version}" for version in versions] or ["missing"]
    metafunc.parametrize(
        "postgres_version", versions or [missing], ids=ids, indirect=True, scope="session"
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note the servers of a test for the summary."""
    kind = _kind_of(item)
    if kind is not None:
        item.user_properties.append((ON_SERVER, kind))
    version = _parameter(item, "postgres_version")
    if isinstance(version, int):
        item.user_properties.append((ON_SERVER, kind_of(version)))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Tell what ran where and what was left out."""
    programs = config.stash[_PROGRAMS]
    summary = Summary(versions={kind: program.version for kind, program in programs.items()})
    if programs:
        program = first_program(programs)
        summary.versions["cluster"] = f"of {program.kind} {program.version}"
    versions = config.stash[_POSTGRES]
    summary.versions |= {kind_of(version): found.version for version, found in versions.items()}
    for reports in terminalreporter.stats.values():
        summary.add_reports(reports)
    for kind, other in (("redis", "valkey"), ("valkey", "redis")):
        if kind not in programs:
            note = f"{kind}-server is not installed: tests on a server ran on {other} only"
            summary.left_out[note] = 0
    for version in sorted(set(VERSIONS) - set(versions)):
        ran = " and ".join(map(str, versions)) or "none"
        note = f"no Postgres {version} here (or not chosen): tests on Postgres ran on {ran}"
        summary.left_out[note] = 0
    terminalreporter.section("servers")
    for line in summary.lines():
        terminalreporter.write_line(line)
    target: str | None = config.getoption("--summary-json")
    if target is not None:
        summary.save(Path(target))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio, as redjob does."""
    return "asyncio"


@pytest.fixture(scope="session")
def server_pool(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerPool]:
    """The shared servers of this test process."""
    pool = ServerPool(request.config.stash[_PROGRAMS], tmp_path_factory.mktemp("servers"))
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, server_pool: ServerPool) -> TestServer:
    """A shared server: the test runs once on each kind (see the marker and option `server`)."""
    return server_pool.get(cast("ServerKind", request.param))  # set by pytest_generate_tests


@pytest.fixture
def ns(request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace that nothing else uses: the test's own keys on a shared server."""
    name = f"t{secrets.token_hex(5)}"
    if _kind_of(request.node) != "cluster":
        yield name
        return
    shared: TestServer = request.getfixturevalue("server")
    yield name
    shared.cluster.remove(name)


@pytest.fixture
def own_servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OwnServers]:
    """What the next three start: whatever the test may kill, restart or empty."""
    programs = request.config.stash[_PROGRAMS]
    if not programs:
        pytest.skip("no server program here")
    properties: list[tuple[str, object]] = request.node.user_properties
    servers = OwnServers(programs, tmp_path, lambda kind: properties.append((ON_SERVER, kind)))
    yield servers
    servers.close()


@pytest.fixture
def own_server(own_servers: OwnServers) -> OwnServerFactory:
    """Start servers of the test's own."""
    return own_servers


@pytest.fixture
def own_cluster(own_servers: OwnServers) -> OwnClusterFactory:
    """Start clusters of the test's own."""
    return own_servers.cluster


@pytest.fixture
def own_sentinel(own_servers: OwnServers) -> OwnSentinelFactory:
    """Start a primary and a replica under sentinels of the test's own."""
    return own_servers.sentinel


@pytest.fixture(scope="session")
def postgres_pool(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PostgresPool]:
    """The shared Postgres servers of this test process."""
    pool = PostgresPool(request.config.stash[_POSTGRES], tmp_path_factory.mktemp("postgres"))
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def postgres_version(request: pytest.FixtureRequest) -> int:
    """A version: the test runs once on each (see the marker and option `postgres`)."""
    return cast("int", request.param)  # set by pytest_generate_tests


@pytest.fixture
def postgres(postgres_pool: PostgresPool, postgres_version: int) -> Iterator[str]:
    """The URL of an empty database of the test's own, on a shared Postgres of each version."""
    shared = postgres_pool.get(postgres_version)
    url = shared.make()
    yield url
    shared.drop(url)


@pytest.fixture
def own_postgres(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OwnPostgresFactory]:
    """Start Postgres servers of the test's own: to kill, to pause, to restart."""
    versions = request.config.stash[_POSTGRES]
    if not versions:
        pytest.skip("no Postgres here")
    properties: list[tuple[str, object]] = request.node.user_properties
    servers = OwnPostgresServers(
        versions, tmp_path, lambda kind: properties.append((ON_SERVER, kind))
    )
    yield servers
    servers.close()


def _kind_of(item: pytest.Item) -> str | None:
    """The kind of shared server that a test runs on."""
    return cast("str | None", _parameter(item, "server"))


def _parameter(item: pytest.Item, name: str) -> object:
    if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
        return item.callspec.params.get(name)
    return None


def _available_kinds(config: pytest.Config) -> set[ServerKind]:
    available: set[ServerKind] = {*config.stash[_PROGRAMS], "fakeredis"}
    if config.stash[_PROGRAMS]:
        available.add("cluster")
    chosen: list[ServerKind] | None = config.getoption("--server")
    return available if chosen is None else available & set(chosen)
