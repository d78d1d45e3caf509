"""Bugs that are planted on purpose, to see that the checker of histories finds them; under runner.

They live in the test's runner alone: other text for a script, or another function in the sweeper.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from redjob.calls.scripts import Script, ScriptSet, load_script
from redjob.calls.sweep_reads import expired
from redjob.sweeper import leases

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redjob.calls.reads import Query
    from redjob.keys import PartitionKeys

_HOUR_MS = 3_600_000
_ASKS = "expired"  # the sweeper's name for the query that finds leases to end


class Edit(NamedTuple):
    """Text of a script, which must be there once, and what stands there instead."""

    old: str
    new: str


PLANTS: Mapping[str, Mapping[str, Edit]] = {
    "": {},
    # every third call that has delayed jobs forgets to put them into due
    "enqueue_loses_zadd": {
        "enqueue": Edit(
            "if failed(redis.pcall('ZADD', KEYS[6], unpack(due))) then",
            "if seq % 3 ~= 0 and failed(redis.pcall('ZADD', KEYS[6], unpack(due))) then",
        )
    },
    # removes first, and every tenth call breaks before it adds
    "fire_removes_first": {
        "fire": Edit(
            "local gone = {}\n",
            "local gone = {}\n"
            "if #sent > 0 then redis.call('ZREM', KEYS[4], unpack(sent)) end\n"
            "if #sent > 0 and seq % 10 == 0 then error('out of memory, say') end\n",
        )
    },
    "take_ignores_dispatched": {"take": Edit("if named[i] == entries[i] then", "if true then")},
    "finish_ignores_lease": {
        "finish": Edit("if runs[i] ~= attempt .. ' ' .. worker then", "if false then")
    },
    # the sweeper looks an hour ahead, and the script does not look again
    "reclaim_live_lease": {
        "reclaim": Edit("if lease and tonumber(lease) > now_ms then return 'L' end", "")
    },
    # takes what is due within half a second for due
    "enqueue_early": {"enqueue": Edit("if run_at > now_ms then", "if run_at > now_ms + 500 then")},
    "cancel_leaves_due": {"cancel": Edit("redis.pcall('ZREM', KEYS[8], id)\n", "")},
}


class PlantedScripts(ScriptSet):
    """All scripts, some with a bug; `replaced` as in `expanded`."""

    def __init__(
        self, edits: Mapping[str, Edit], replaced: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(replaced)
        self._edits = edits

    def __getitem__(self, name: str) -> Script:
        script = super().__getitem__(name)
        return planted(script, self._edits[name]) if name in self._edits else script


def planted(script: Script, edit: Edit) -> Script:
    """A script with other text. Raises ValueError where the text to be replaced is not there once."""
    if script.text.count(edit.old) != 1:
        message = f"{script.name}.lua has not exactly one {edit.old!r}"
        raise ValueError(message)
    text = script.text.replace(edit.old, edit.new)
    sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return replace(script, text=text, sha=sha)


def plant(name: str) -> ScriptSet:
    """Plant a bug in this process, and return the scripts to use with it."""
    if name == "reclaim_live_lease":
        setattr(leases, _ASKS, _expired_in_an_hour)
    return PlantedScripts(PLANTS[name])


def check_plants() -> None:
    """Raise ValueError when a plant does not fit the scripts any more."""
    for edits in PLANTS.values():
        for script, edit in edits.items():
            planted(load_script(script), edit)


def _expired_in_an_hour(
    part: PartitionKeys, now_ms: int, *, skip: int, limit: int
) -> Query[list[str]]:
    return expired(part, now_ms + _HOUR_MS, skip=skip, limit=limit)
