"""`redjob dev` and Postgres: one of its own, the user's, or none."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import psutil
import pytest

from redjob.cli import dev as dev_module
from redjob.cli.dev import starts_postgres
from tests.flow.processes import Process, process

if TYPE_CHECKING:
    from collections.abc import Iterator

USERS = "postgresql://user:s3cret@127.0.0.1:1/jobs"


@pytest.fixture(autouse=True)
def _in_a_project_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("REDJOB_POSTGRES_URL", "REDJOB_POSTGRES_SCHEMA"):
        monkeypatch.delenv(name, raising=False)


def _free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return str(probe.getsockname()[1])


def _children(dev: Process) -> Iterator[psutil.Process]:
    """The `redjob` processes under it, once they are there."""
    dev.wait_for("event=starting role=scheduler")
    for child in psutil.Process(dev.popen.pid).children():
        if "redjob" in child.cmdline():
            yield child


async def _ask(url: str, statement: str) -> object:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


@pytest.mark.slow
def test_its_own_postgres_is_told_of_kept_up_and_stopped() -> None:
    with process("dev", "--port", _free_port(), "--postgres", without_redis_url=True) as dev:
        told = dev.wait_for("Postgres is")
        assert str(Path(".redjob/postgres/password").absolute()) in told
        password = Path(".redjob/postgres/password").read_text()
        assert password not in told
        (url,) = {child.environ()["REDJOB_POSTGRES_URL"] for child in _children(dev)}
        assert password in url
        asyncio.run(_ask(url, "CREATE TABLE kept AS SELECT 'value' AS value"))
        server = int(Path(".redjob/postgres/server.pid").read_text())
        os.kill(server, signal.SIGKILL)
        dev.wait_for("Postgres has ended, starts again")
        assert asyncio.run(_ask_soon(url, "SELECT value FROM kept")) == "value"
        stack = psutil.Process(dev.popen.pid).children(recursive=True)
        assert dev.end(signal.SIGINT) == 0
        assert psutil.wait_procs(stack, timeout=10)[1] == []


async def _ask_soon(url: str, statement: str) -> object:
    """Ask a server that is just being started again."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await _ask(url, statement)
            except (OSError, asyncpg.CannotConnectNowError):
                await asyncio.sleep(0.05)


@pytest.mark.slow
def test_the_users_postgres_is_handed_on_and_its_password_is_not_shown() -> None:
    arguments = ["--port", _free_port(), "--postgres-url", USERS, "--postgres-schema", "theirs"]
    with process("dev", *arguments, without_redis_url=True) as dev:
        for child in _children(dev):
            assert child.environ()["REDJOB_POSTGRES_URL"] == USERS
            assert child.environ()["REDJOB_POSTGRES_SCHEMA"] == "theirs"
        assert dev.log_has("Postgres is postgresql://***@127.0.0.1:1/jobs")
        assert not dev.log_has("s3cret")
        assert not Path(".redjob/postgres").exists()


@pytest.mark.slow
def test_no_postgres_means_none_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REDJOB_POSTGRES_URL", USERS)
    arguments = ["--port", _free_port(), "--no-postgres", "--json"]
    with process("dev", *arguments, without_redis_url=True) as dev:
        assert json.loads(dev.wait_for("REDJOB_REDIS_URL"))["name"] == "dev"
        assert {child.environ()["REDJOB_POSTGRES_URL"] for child in _children(dev)} == {""}
        assert not dev.log_has("Postgres is")
        assert not Path(".redjob/postgres").exists()


@pytest.mark.slow
def test_a_postgres_that_cannot_start_is_one_line_and_nothing_is_left_running() -> None:
    Path(".redjob").mkdir()
    Path(".redjob/postgres").write_text("in the way")
    with process("dev", "--port", _free_port(), "--postgres", without_redis_url=True) as dev:
        assert dev.end() != 0
        assert len(dev.seen) == 1
        assert dev.seen[0].startswith("redjob: the server did not start: ")
        assert ".redjob/postgres: File exists" in dev.seen[0]
        assert not Path(".redjob/server.pid").exists()


def test_postgres_is_started_unasked_only_beside_a_redis_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dev_module, "_POSTGRES_BY_DEFAULT", True)
    assert starts_postgres(own_redis=True, wanted=None)
    assert not starts_postgres(own_redis=False, wanted=None)
    assert starts_postgres(own_redis=False, wanted=True)
    monkeypatch.setattr(dev_module, "all_postgres", list)
    assert not starts_postgres(own_redis=True, wanted=None)
