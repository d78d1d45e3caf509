"""The servers under `redjob dev`: looked after while its children run, and prepared by one of them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping

from redjob.dev.children import ChildSpec, Say
from redjob.embedded import ServerProcess, ServerStartFailed

_LOOK_EVERY_S = 1.0


async def keep_up(servers: Mapping[str, ServerProcess], say: Say) -> None:
    """Start servers again that have crashed, until cancelled; their ports and their data stay."""
    while True:
        await asyncio.sleep(_LOOK_EVERY_S)
        for name, server in servers.items():
            if not server.running:
                say("dev", f"{name} has ended, starts again")
                try:
                    server.start()  # not in a thread: it is one thread's, and this one may have to stop it
                except ServerStartFailed as exc:
                    say("dev", str(exc))


def run_once(spec: ChildSpec, say: Say) -> int:
    """Run one `redjob` command line to its end, pass on what it says and return its exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "redjob", *spec.arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **spec.environment},
        text=True,
        errors="replace",
        check=False,
    )
    for line in done.stdout.splitlines():
        say(spec.name, line)
    return done.returncode
