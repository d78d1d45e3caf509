"""`redjob worker` and `redjob dev` as processes of their own: a job in, its result out, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import textwrap
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from redjob.cli.root import WRONG_USE
from tests.flow.commands import redjob
from tests.flow.processes import Process, process

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.servers import TestServer

APP = """
import multiprocessing, os, signal, time
from redjob import Redjob

app = Redjob("redis://127.0.0.1:1/0")  # nothing is there: the command line wins
text = "not an app"

@app.task(queue="email")
async def greet(name: str) -> str:
    return f"hello {name}"

@app.task(queue="slow")
def fork_and_terminate() -> int | None:
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    child.start()
    child.terminate()
    child.join(10)
    return child.exitcode

@app.task(queue="slow")
def nap(seconds: float) -> str:
    print("napping", flush=True)
    time.sleep(seconds)
    return "woken"
"""


@pytest.fixture
def apps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with an app, in which commands are started."""
    (tmp_path / "shop.py").write_text(textwrap.dedent(APP))
    (tmp_path / "broken.py").write_text("raise RuntimeError('no database')\n")
    (tmp_path / "needy.py").write_text("import not_installed_anywhere\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["shop"], "module:attribute"),
        ([":app"], "module:attribute"),
        (["nowhere:app"], "no module 'nowhere'"),
        (["shop.sub:app"], "shop"),
        (["shop:nothing"], "no attribute 'nothing'"),
        (["shop:text"], "is a str, not a redjob.Redjob"),
        (["broken:app"], "RuntimeError: no database"),
        (["needy:app"], "not_installed_anywhere"),
        (["shop:app", "-Q", "billing:3"], "weights are not supported yet"),
        (["shop:app", "-Q", "a b"], "queues"),
        (["shop:app", "-Q", ""], "queues"),
        (["shop:app", "-c", "0"], "concurrency"),
        (["shop:app", "--lease-s", "10", "--heartbeat-s", "9"], "heartbeat_s"),
        (["shop:app", "--redis-url", "ftp://x"], "redis_url"),
    ],
)
def test_a_worker_that_cannot_be_meant_is_refused(
    apps: Path, arguments: list[str], told: str
) -> None:
    with process("worker", *arguments) as worker:
        assert worker.end() == WRONG_USE, apps
        assert worker.seen[-1].startswith("redjob: ")
        assert told in worker.seen[-1]
        assert not any("Traceback" in line for line in worker.seen)


def place(server: TestServer, ns: str) -> list[str]:
    """The options that name the test's namespace."""
    return ["--redis-url", server.url, "--namespace", ns]


def wait_until_open(where: list[str]) -> None:
    """Wait until a scheduler has opened every partition of the namespace."""
    deadline = time.monotonic() + 20
    while not _all_owned(where):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _all_owned(where: list[str]) -> bool:
    checks = redjob("doctor", "--json", *where).objects[0]["checks"]
    return ("partitions", "ok") in {(check["name"], check["status"]) for check in checks}


@pytest.mark.slow
@pytest.mark.server("valkey", "redis", "cluster")
def test_one_process_can_be_the_whole_stack(apps: Path, server: TestServer, ns: str) -> None:
    where = place(server, ns)
    with process("worker", "shop:app", "--with-scheduler", *where) as worker:
        worker.wait_for("event=worker_started")
        wait_until_open(where)
        ran = redjob(
            "enqueue", "shop.greet", '{"name": "Ada"}', "-q", "email", "--in", "0.2", "--wait",
            "10", "--json", *where,
        )  # fmt: skip
        assert ran.code == 0, ran.err
        assert ran.objects[0]["result"] == "hello Ada"
        checks = {
            c["name"]: c["status"] for c in redjob("doctor", "--json", *where).objects[0]["checks"]
        }
        assert (checks["owners"], checks["workers"]) == ("ok", "ok")
        assert worker.end(signal.SIGTERM) == 0
        assert worker.log_has("event=partitions_closed"), apps


@pytest.mark.slow
def test_the_first_signal_lets_jobs_end_and_the_second_does_not(
    apps: Path, server: TestServer, ns: str
) -> None:
    where = place(server, ns)
    options = ["worker", "shop:app", "--with-scheduler", "--lease-s", "3", *where]
    with process(*options) as worker:
        worker.wait_for("event=worker_started")
        wait_until_open(where)
        job_id = redjob("enqueue", "shop.nap", '{"seconds": 1}', "-q", "slow", *where).out.strip()
        wait_for_state(job_id, "RUNNING", where)
        assert worker.end(signal.SIGTERM) == 0, apps
        assert job_state(job_id, where) == "COMPLETED"
    with process(*options) as worker:
        worker.wait_for("event=worker_started")
        job_id = redjob("enqueue", "shop.nap", '{"seconds": 60}', "-q", "slow", *where).out.strip()
        wait_for_state(job_id, "RUNNING", where)
        started = time.monotonic()
        while worker.popen.poll() is None:  # two that come at once are one to the process
            worker.popen.send_signal(signal.SIGTERM)
            time.sleep(0.05)
        assert worker.end() == 128 + signal.SIGTERM
        assert time.monotonic() - started < 5
        assert job_state(job_id, where) == "RUNNING"  # its lease is what brings it back


def job_state(job_id: str, where: list[str]) -> str:
    """The state of a job, as the command line tells it."""
    (shown,) = redjob("job", "show", job_id, "--json", *where).objects
    return str(shown["state"])


def wait_for_state(job_id: str, state: str, where: list[str]) -> None:
    """Wait until a job is where it should be."""
    deadline = time.monotonic() + 20
    while job_state(job_id, where) != state:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def dev_stack(dev: Process) -> list[psutil.Process]:
    """Every process under `redjob dev`."""
    return psutil.Process(dev.popen.pid).children(recursive=True)


@pytest.mark.slow
def test_dev_runs_the_stack_and_ctrl_c_stops_all_of_it(apps: Path) -> None:
    port = free_port()
    where = ["--redis-url", f"redis://127.0.0.1:{port}/0"]
    with process("dev", "shop:app", "--port", str(port), without_redis_url=True) as dev:
        dev.wait_for("event=worker_started")
        wait_until_open(where)
        stack = dev_stack(dev)
        ran = redjob(
            "enqueue", "shop.greet", '{"name": "Ada"}', "-q", "email", "--wait", "10", "--json", *where
        )  # fmt: skip
        assert ran.code == 0, ran.err
        assert ran.objects[0]["result"] == "hello Ada"
        assert (apps / ".redjob").is_dir()
        assert dev.end(signal.SIGINT) == 0
        gone, alive = psutil.wait_procs(stack, timeout=10)
        assert (len(gone) >= 4, alive) == (True, [])


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_lets_running_jobs_end(
    apps: Path, server: TestServer, ns: str
) -> None:
    where = place(server, ns)
    with process("dev", "shop:app", *where) as dev:
        dev.wait_for("event=worker_started")
        wait_until_open(where)
        job_id = redjob("enqueue", "shop.nap", '{"seconds": 2}', "-q", "slow", *where).out.strip()
        dev.wait_for("napping")
        dev.type_ctrl_c()
        assert dev.end() == 0, apps
        assert job_state(job_id, where) == "COMPLETED"


@pytest.mark.slow
def test_a_second_ctrl_c_does_not_wait_for_running_jobs(
    apps: Path, server: TestServer, ns: str
) -> None:
    where = place(server, ns)
    with process("dev", "shop:app", "--json", *where) as dev:
        dev.wait_for("event=worker_started")
        assert json.loads(dev.seen[0])["name"] == "dev", apps
        wait_until_open(where)
        redjob("enqueue", "shop.nap", '{"seconds": 60}', "-q", "slow", *where)
        dev.wait_for("napping")
        stack = dev_stack(dev)
        dev.popen.send_signal(signal.SIGINT)
        dev.wait_for("event=stopped role=scheduler")
        started = time.monotonic()
        assert dev.end(signal.SIGINT) == 128 + signal.SIGINT
        assert time.monotonic() - started < 5
        assert psutil.wait_procs(stack, timeout=10)[1] == []


@pytest.mark.slow
def test_nothing_survives_a_dev_that_is_killed(apps: Path) -> None:
    port = free_port()
    with process("dev", "--port", str(port), without_redis_url=True) as dev:
        dev.wait_for("event=partitions_opened")
        stack = dev_stack(dev)
        os.kill(dev.popen.pid, signal.SIGKILL)
        gone, alive = psutil.wait_procs(stack, timeout=15)
        assert (len(gone) >= 3, alive) == (True, []), apps


def test_dev_ends_when_the_app_is_not_there(apps: Path, server: TestServer, ns: str) -> None:
    with process("dev", "nowhere:app", *place(server, ns)) as dev:
        dev.wait_for("no module 'nowhere'")
        assert dev.end() == WRONG_USE, apps


@pytest.mark.slow
def test_processes_that_a_task_forks_end_by_signals_like_any_other(
    apps: Path, server: TestServer, ns: str
) -> None:
    where = place(server, ns)
    with process("worker", "shop:app", "--with-scheduler", *where) as worker:
        worker.wait_for("event=worker_started")
        wait_until_open(where)
        ran = redjob(
            "enqueue", "shop.fork_and_terminate", "-q", "slow", "--wait", "15", "--json", *where,
        )  # fmt: skip
        assert ran.code == 0, ran.err
        assert ran.objects[0]["result"] == -signal.SIGTERM, apps
        assert worker.end(signal.SIGTERM) == 0
