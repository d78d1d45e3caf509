"""Service processes: they wait for a server, refuse a bad one, drain when asked, end with their parent."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import textwrap
from typing import TYPE_CHECKING

import psutil
import pytest

from redjob.cli.root import FAILED, WRONG_USE
from redjob.dev import Child, ChildSpec, WrongUse, run_children
from tests.flow.processes import process

if TYPE_CHECKING:
    from tests.support.servers import OwnServerFactory, TestServer

pytestmark = pytest.mark.anyio


@pytest.mark.server("valkey", "redis", "cluster")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_service_drains_at_the_first_signal_and_ends_with_0(
    server: TestServer, ns: str, number: int
) -> None:
    with process("sweeper", "--redis-url", server.url, "--namespace", ns) as sweeper:
        sweeper.wait_for("event=server_checked")
        assert sweeper.end(number) == 0
        assert "event=stopped role=sweeper" in sweeper.seen[-1]
        assert all(line.startswith("ts=") for line in sweeper.seen)


def test_a_service_waits_for_a_server_that_is_down_and_says_so(
    own_server: OwnServerFactory, ns: str
) -> None:
    server = own_server()
    server.stop()
    with process("sweeper", "--redis-url", server.url, "--namespace", ns) as sweeper:
        assert server.url.rsplit("/", 1)[0] in sweeper.wait_for("event=redis_unavailable")
        server.start()
        sweeper.wait_for("event=server_checked")
        assert sweeper.end(signal.SIGTERM) == 0


def test_a_service_that_waits_for_its_server_can_be_stopped(ns: str) -> None:
    with process("sweeper", "--redis-url", "redis://:pw@127.0.0.1:1", "--namespace", ns) as sweeper:
        sweeper.wait_for("event=redis_unavailable")
        assert sweeper.end(signal.SIGTERM) == 0
        assert not any(":pw" in line for line in sweeper.seen)


def test_an_evicting_server_is_refused_unless_it_is_allowed(
    own_server: OwnServerFactory, ns: str
) -> None:
    server = own_server(extra_args=("--maxmemory-policy", "volatile-lru"))
    place = ("--redis-url", server.url, "--namespace", ns)
    with process("sweeper", *place) as sweeper:
        assert sweeper.end() == FAILED
        assert sweeper.seen[-1].startswith("redjob: maxmemory-policy is volatile-lru")
        assert not any("Traceback" in line for line in sweeper.seen)
    with process("sweeper", *place, "--allow-eviction") as sweeper:
        sweeper.wait_for("allowed by --allow-eviction")
        assert sweeper.end(signal.SIGTERM) == 0


def test_a_service_can_log_json(server: TestServer, ns: str) -> None:
    place = ("--redis-url", server.url, "--namespace", ns)
    with process("sweeper", "--json", *place) as sweeper:
        sweeper.wait_for("server_checked")
        assert sweeper.end(signal.SIGTERM) == 0
        events = [json.loads(line)["event"] for line in sweeper.seen]
        assert (events[0], events[-1]) == ("starting", "stopped")


def test_wrong_values_are_refused_before_anything_starts() -> None:
    for arguments in (
        ("sweeper", "--lease-s", "0"),
        ("sweeper", "--lease-s", "nan"),
        ("scheduler", "--depth-limit", "many"),
        ("sweeper", "--log-level", "loud"),
    ):
        with process(*arguments) as service:
            assert service.end() == WRONG_USE
            assert service.seen[-1].startswith("redjob: ")


def test_a_service_ends_when_its_stdin_does(server: TestServer, ns: str) -> None:
    place = ("--redis-url", server.url, "--namespace", ns)
    with process("sweeper", *place, "--exit-with-stdin") as sweeper:
        sweeper.wait_for("event=server_checked")
        assert sweeper.popen.stdin is not None
        sweeper.popen.stdin.close()
        assert sweeper.end() == 0


def test_a_service_that_follows_its_stdin_still_drains_when_it_is_asked_to(
    server: TestServer, ns: str
) -> None:
    place = ("--redis-url", server.url, "--namespace", ns)
    with process("sweeper", *place, "--exit-with-stdin") as sweeper:
        sweeper.wait_for("event=server_checked")
        assert sweeper.end(signal.SIGTERM) == 0
        assert not any("Fatal" in line for line in sweeper.seen)


class Stack:
    """Children under this test, with what they have said."""

    def __init__(self, *specs: ChildSpec) -> None:
        self.said: list[tuple[str, str]] = []
        self.children = [Child(spec, self._hear) for spec in specs]
        self.stop = asyncio.Event()

    def _hear(self, name: str, line: str) -> None:
        self.said.append((name, line))

    async def wait_for(self, words: str, times: int = 1) -> None:
        """Wait until these words were said so many times."""
        async with asyncio.timeout(20):
            while True:
                if sum(words in line for _, line in self.said) >= times:
                    return
                await asyncio.sleep(0.01)


def sweeper_of(server: TestServer, ns: str) -> ChildSpec:
    """A sweeper to be kept running."""
    place = {"REDJOB_REDIS_URL": server.url, "REDJOB_NAMESPACE": ns}
    return ChildSpec("sweeper", ["sweeper"], place)


async def test_a_killed_child_is_started_again_and_stopped_in_good_order(
    server: TestServer, ns: str
) -> None:
    stack = Stack(sweeper_of(server, ns))
    (child,) = stack.children
    running = asyncio.create_task(run_children(stack.children, stack.stop))
    await stack.wait_for("event=server_checked")
    first = child.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await stack.wait_for("event=server_checked", times=2)
    assert child.starts == 2
    assert child.pid != first
    assert ("sweeper", "ended (SIGKILL), starts again in 0.2 s") in stack.said
    stack.stop.set()
    await running
    assert child.pid is None
    assert "event=stopped role=sweeper" in stack.said[-1][1]


async def test_a_child_with_a_wrong_command_line_is_not_tried_for_ever() -> None:
    stack = Stack(ChildSpec("sweeper", ["sweeper", "--no-such-option"]))
    with pytest.raises(WrongUse):
        await run_children(stack.children, stack.stop)
    assert stack.children[0].starts == 1
    assert "No such option" in stack.said[-1][1]


async def test_a_child_that_does_not_drain_is_killed_after_its_grace(
    server: TestServer, ns: str
) -> None:
    spec = sweeper_of(server, ns)
    stack = Stack(ChildSpec(spec.name, spec.arguments, spec.environment, grace_s=0.2))
    running = asyncio.create_task(run_children(stack.children, stack.stop))
    await stack.wait_for("event=server_checked")
    (child,) = stack.children
    assert child.pid is not None
    os.kill(child.pid, signal.SIGSTOP)
    stack.stop.set()
    async with asyncio.timeout(10):
        await running
    assert child.pid is None


async def test_children_end_with_a_parent_that_is_killed(server: TestServer, ns: str) -> None:
    parent = textwrap.dedent(
        f"""
        import asyncio, sys
        from redjob.dev import Child, ChildSpec, run_children
        child = Child(ChildSpec("s", ["sweeper"], {{
            "REDJOB_REDIS_URL": {server.url!r}, "REDJOB_NAMESPACE": {ns!r},
        }}), lambda name, line: print(child.pid, line, flush=True))
        asyncio.run(run_children([child], asyncio.Event()))
        """
    )
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-c", parent, stdout=asyncio.subprocess.PIPE
    )
    assert started.stdout is not None
    async with asyncio.timeout(20):
        while b"server_checked" not in (line := await started.stdout.readline()):
            assert line
        child = int(line.split()[0])
        os.kill(child, 0)
        started.kill()
        await started.wait()
        while True:
            if not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie":
                break
            await asyncio.sleep(0.02)


@pytest.mark.slow
def test_schedulers_under_one_command_share_the_work_and_are_started_again(
    server: TestServer, ns: str
) -> None:
    place = ("--redis-url", server.url, "--namespace", ns, "--partitions", "8")
    with process("scheduler", "--procs", "2", "--json", *place) as parent:
        opened: dict[str, int] = {}
        while len(opened) < 2:  # each has opened its share
            told = json.loads(parent.wait_for('"event":"partitions_opened"'))
            opened[told["message"]] = 1
        (first, _) = [child.pid for child in psutil.Process(parent.popen.pid).children()]
        os.kill(first, signal.SIGKILL)
        parent.wait_for("starts again in")
        parent.wait_for('"event":"partitions_opened"')
        assert parent.end(signal.SIGTERM) == 0
        assert not psutil.pid_exists(first)
