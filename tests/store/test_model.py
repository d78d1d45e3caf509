"""A random walk of calls beside a model in Python; and bugs planted in scripts, which the walk must find."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from redjob.errors import RedjobError
from tests.support.clock import NOW
from tests.support.plants import PLANTS, Edit, PlantedScripts
from tests.support.walk_clients import ClientCalls
from tests.support.walk_workers import WorkerCalls
from tests.support.world import World

if TYPE_CHECKING:
    from tests.support.servers import TestServer

STEPS = 2000
SEED = 1

# One line of one script each; what happens then is for the walk to find out.
MORE_PLANTS = {
    "fire_leaves_due": ("fire", "redis.call('ZREM', KEYS[4], unpack(gone))", ""),
    "fire_early": ("fire", "elseif at > now_ms then", "elseif at > now_ms + 100 then"),
    "fire_overtakes_ready": ("fire", "if has_waiting(KEYS[5]) then room = 0 end", ""),
    "release_ignores_the_limit": ("release", "elseif #sent < room then", "elseif true then"),
    "release_leaves_ready": ("release", "redis.call('ZREM', KEYS[3], unpack(sent))", ""),
    "take_forgets_depth": ("take", "redis.pcall('HINCRBY', flow_key, 'depth', -total)", ""),
    "take_counts_no_attempts": ("take", "or 0) + 1", "or 0)"),
    "take_forgets_what_it_took": ("take", "remember(KEYS[7], tag, started)", ""),
    "begin_leaves_dispatched": ("begin", "redis.call('HDEL', KEYS[3], id)", ""),
    "heartbeat_extends_any": (
        "heartbeat", "if runs[i] == attempt .. ' ' .. worker then", "if runs[i] then",
    ),
    "heartbeat_adopts_any_attempt": ("heartbeat", "if begun ~= attempt - 1 then", "if false then"),
    "finish_leaves_runs": ("finish", "redis.call('HDEL', KEYS[4], unpack(moved))", ""),
    "finish_leaves_due": (
        "finish", "for _, place in ipairs({ 'due', 'ready', 'dead' }) do",
        "for _, place in ipairs({ 'ready', 'dead' }) do",
    ),
    "finish_forgets_the_cancel": ("finish", "code == 'M' and asked[i] then", "false then"),
    "finish_takes_late_ones_while_a_newer_runs": ("finish", "if runs_now then return 'L' end", ""),
    "finish_journals_nothing": (
        "finish", "journal('finish', tag, lines, 'worker', worker)", "",
    ),
    "reclaim_ignores_grace": ("reclaim", "if until_ms > now_ms then", "if false then"),
    "reclaim_ignores_the_run": (
        "reclaim", "if (redis.call('HGET', KEYS[4], id) or '') ~= run then return 'L' end", "",
    ),
    "requeue_settles_nothing": ("requeue", "redis.call('XDEL', KEYS[10], unpack(settled))", "0"),
    "replay_ignores_what_was_seen": (
        "replay", "elseif tonumber(died) ~= tonumber(ARGV[3]) then code = 'C'", "",
    ),
    "purge_leaves_attempts": ("purge", "redis.call('HDEL', KEYS[4], unpack(gone))", ""),
    "lose_leaves_due": ("lose", "redis.pcall('ZREM', KEYS[place], unpack(gone))", ""),
}  # fmt: skip
IN_PROCESSES = {""}
ALL_PLANTS = {
    **{name: edits for name, edits in PLANTS.items() if name not in IN_PROCESSES},
    **{name: {script: Edit(old, new)} for name, (script, old, new) in MORE_PLANTS.items()},
}


class RandomWalk(ClientCalls, WorkerCalls):
    """All calls."""


def walk(world: World) -> None:
    steps = RandomWalk(world, Random(SEED))
    for _ in range(STEPS):
        steps.step()


def test_every_step_answers_and_leaves_what_the_model_says(world: World) -> None:
    walk(world)


@pytest.mark.server("valkey")
@pytest.mark.parametrize("plant", ALL_PLANTS)
def test_the_walk_finds_a_planted_bug(server: TestServer, ns: str, plant: str) -> None:
    scripts = PlantedScripts(ALL_PLANTS[plant], {"lib/now": NOW})
    found = pytest.raises((AssertionError, RedjobError))
    with World(server.url, ns, scripts=scripts) as world, found:
        walk(world)
