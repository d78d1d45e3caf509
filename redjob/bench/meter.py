"""What a run cost: the server's own account of its commands, and processor time of processes.

Counts of jobs are never taken from here; they come from the tasks' side effects (`tally`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from redjob.bench.bare import BareClient


class CommandCost(NamedTuple):
    """Calls of one command and the server's time in them, µs."""

    calls: int
    usec: int


class ServerCost(NamedTuple):
    """What the server spent between two readings.

    `cpu_us` is the processor time of its main thread (all of it where the server does not tell them
    apart), `commands` also holds those that scripts called.
    """

    cpu_us: float
    commands: dict[str, CommandCost]

    @property
    def script_us(self) -> int:
        """Time in scripts, with all commands that they called, µs."""
        return sum(
            self.commands[name].usec for name in ("evalsha", "eval") if name in self.commands
        )

    @property
    def script_calls(self) -> int:
        """How many script calls there were."""
        return sum(
            self.commands[name].calls for name in ("evalsha", "eval") if name in self.commands
        )


class ServerMeter:
    """Reads INFO and answers with differences, so that a server in use keeps its statistics."""

    def __init__(self, client: BareClient) -> None:
        self._client = client
        self._cpu_us, self._commands = self._read()

    def take(self) -> ServerCost:
        """Return what was spent since the last reading, and begin a new one."""
        before_cpu, before = self._cpu_us, self._commands
        self._cpu_us, self._commands = self._read()
        nothing = CommandCost(0, 0)
        spent = {
            name: CommandCost(now.calls - old.calls, now.usec - old.usec)
            for name, now in self._commands.items()
            if now.calls > (old := before.get(name, nothing)).calls
        }
        return ServerCost(self._cpu_us - before_cpu, spent)

    def _read(self) -> tuple[float, dict[str, CommandCost]]:
        cpu = _info(self._client, "cpu")
        seconds = sum(
            float(cpu.get(f"used_cpu_{kind}_main_thread", cpu[f"used_cpu_{kind}"]))
            for kind in ("user", "sys")
        )
        stats = _info(self._client, "commandstats")
        commands = {
            name.removeprefix("cmdstat_"): CommandCost(int(row["calls"]), int(row["usec"]))
            for name, row in stats.items()
        }
        return seconds * 1e6, commands


def used_memory(client: BareClient) -> int:
    """Return the bytes that the server has allocated."""
    return int(_info(client, "memory")["used_memory"])


def _info(client: BareClient, section: str) -> dict[str, Any]:
    found: Any = client.info(section)
    return dict(found)


def process_cpu_us(pids: list[int]) -> float | None:
    """Return the processor time that live processes have used so far, µs; None without /proc."""
    ticks = 0
    for pid in pids:
        try:
            # the name in the second field may hold anything, so count from its closing bracket
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            return None
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK") * 1e6
