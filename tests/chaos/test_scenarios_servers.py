"""A server that may delete jobs is refused by every service, and noticed when it becomes one."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING

import pytest
from redis import Redis

if TYPE_CHECKING:
    from tests.chaos.conftest import SceneFactory
    from tests.support.processes import Service
    from tests.support.scene import Scene
    from tests.support.servers import OwnServerFactory

FAILED = 1
COMMANDS = {"scheduler": (), "sweeper": (), "worker": ("tests.support.plain_app:app",)}


def _redjob(stage: Scene, role: str, *more: str) -> Service:
    place = ("--redis-url", stage.settings.url, "--namespace", stage.settings.namespace)
    command = [sys.executable, "-m", "redjob", role, *COMMANDS[role], *place, *more]
    return stage.run(role, command)


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-lru"])
def test_every_service_refuses_a_server_that_evicts_with_one_clear_line(
    scene: SceneFactory, own_server: OwnServerFactory, policy: str
) -> None:
    server = own_server(extra_args=("--maxmemory-policy", policy))
    stage = scene(server.url)
    services = [_redjob(stage, role) for role in COMMANDS]
    for service in services:
        assert service.wait() == FAILED
        last = list(service.lines())[-1]
        assert last.startswith(f"redjob: maxmemory-policy is {policy}")
        assert "noeviction" in last
        assert "--allow-eviction" in last
        assert not any("Traceback" in line for line in service.lines())
    assert not stage.redis.keys("*")  # nothing was begun on it


def test_every_service_runs_on_such_a_server_when_it_is_told_to_and_warns(
    scene: SceneFactory, own_server: OwnServerFactory
) -> None:
    server = own_server(extra_args=("--maxmemory-policy", "allkeys-lru"))
    stage = scene(server.url)
    services = [_redjob(stage, role, "--allow-eviction") for role in COMMANDS]
    for service in services:
        service.wait_for("event=server_checked")
        assert any("allowed by --allow-eviction" in line for line in service.lines())
    stage.wait(stage.is_open, what="open")
    assert {service.stop() for service in services} == {0}


def test_a_policy_that_is_changed_while_a_service_runs_is_noticed_and_the_service_goes_on(
    scene: SceneFactory, own_server: OwnServerFactory
) -> None:
    server = own_server()
    stage = scene(server.url)
    program = textwrap.dedent(
        f"""
        from redjob.cli.service import CHECK_EVERY_S, Place, run_service, run_until
        from redjob.config import SchedulerConfig
        from redjob.scheduler import SchedulerNode
        from redjob.store.settings import settings_from_url
        from tests.support.runner import log_to_stderr

        async def serve(store, stop):
            await run_until(stop, SchedulerNode(store, SchedulerConfig()).run())

        assert CHECK_EVERY_S <= 60
        log_to_stderr()
        place = Place(settings_from_url({server.url!r}), "scene", None, False)
        run_service("scheduler", place, serve, check_every_s=0.1)
        """
    )
    service = stage.run("scheduler", [sys.executable, "-c", program])
    stage.wait(stage.is_open, what="open")
    assert not any("server_unsuitable" in line for line in service.lines())
    with Redis.from_url(server.url) as redis:
        redis.config_set("maxmemory-policy", "allkeys-lru")
    service.wait_for("event=server_unsuitable")
    assert any("maxmemory-policy is allkeys-lru" in line for line in service.lines())
    assert stage.client.enqueue("work", {"number": 1}).id
    assert service.stop() == 0
