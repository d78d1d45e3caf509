"""Runs the demo; exit code 0 only if everything was as it must be."""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from redjob import AsyncClient
from redjob.clock import Clock, SystemClock
from redjob.demo.checks import checks
from redjob.demo.outcome import gather
from redjob.demo.report import table, verdicts
from redjob.demo.scenario import play
from redjob.demo.stack import WORKERS, Stack, running_stack
from redjob.embedded import EmbeddedServer
from redjob.errors import RedjobError

_LOG_LINES = 40


class Teller:
    """Prints what happens, with the seconds since the beginning."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()

    def __call__(self, text: str) -> None:
        """Print one line."""
        print(f"{self._clock.monotonic() - self._began:6.1f} s  {text}", flush=True)


async def run(server: EmbeddedServer, trace: Path, say: Teller) -> bool:
    """Play the scenario on a running server and judge it."""
    say(f"a server of our own at {server.url}, its append-only file in {server.directory}")
    async with running_stack(server.url, trace) as stack, AsyncClient(server.url) as client:
        say(f"scheduler, sweeper and {WORKERS} workers are ready, each a process of its own")
        try:
            asked = await play(client, stack, say)
        except TimeoutError:
            say("FAIL: not everything ended in time")
            _print_log(stack)
            return False
        outcome = await gather(client, stack, asked)
        print("", *table(outcome), "", sep="\n")
        found = checks(outcome)
        print(*verdicts(found), "", sep="\n", flush=True)
        good = not any(check.found for check in found)
        if not good:
            _print_log(stack)
    say("all is as it must be" if good else "FAIL: see above")
    return good


def _print_log(stack: Stack) -> None:
    print(f"the last {_LOG_LINES} lines of the processes:")
    for name, line in stack.said[-_LOG_LINES:]:
        print(f"  {name:<9} | {line}")


def main() -> int:
    """Run the demo in a temporary directory; return the exit code."""
    say = Teller(SystemClock())
    try:
        with ExitStack() as stack:
            directory = Path(stack.enter_context(TemporaryDirectory(prefix="redjob-demo-")))
            server = stack.enter_context(EmbeddedServer(directory / "server"))
            good = asyncio.run(run(server, directory / "trace", say))
    except RedjobError as exc:
        print(f"redjob demo: {exc}", file=sys.stderr)
        return 1
    except TimeoutError:
        print("redjob demo: the processes were not ready in time", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
