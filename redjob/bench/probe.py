"""A timer beside a run: how late the bare server and machine are, whatever redjob does.

Every 50 ms an XADD, and the time until another connection's XREADGROUP has it. A run in which this
takes too long says more about the machine than about redjob.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from typing import Any

from redjob.bench.bare import BareClient, connect

EVERY_S = 0.05
READY = "ready"
_GROUP = "probe"
_BLOCK_MS = 1000


class Probe:
    """Sends and receives on two connections until it is told to stop."""

    def __init__(self, url: str, stream: str) -> None:
        self._url = url
        self._stream = stream
        self._stopped = threading.Event()
        self.samples_ms: list[float] = []

    def run(self) -> None:
        """Measure until stdin ends; print `ready`, and at the end the samples as JSON."""
        with contextlib.closing(connect(self._url)) as client:
            client.xgroup_create(self._stream, _GROUP, id="0", mkstream=True)
            receiver = threading.Thread(target=self._receive, daemon=True)
            receiver.start()
            threading.Thread(target=self._follow_stdin, daemon=True).start()
            self._send(client)
            print(READY, flush=True)
            while not self._stopped.wait(EVERY_S):
                self._send(client)
            receiver.join(3 * _BLOCK_MS / 1000)
            client.unlink(self._stream)
        # the first one pays for connections and imports
        print(json.dumps([round(value, 3) for value in self.samples_ms[1:]]), flush=True)

    def _send(self, client: BareClient) -> None:
        client.xadd(self._stream, {"at": time.perf_counter_ns()}, maxlen=100, approximate=True)

    def _receive(self) -> None:
        with contextlib.closing(connect(self._url)) as client:
            while not self._stopped.is_set():
                found: Any = client.xreadgroup(
                    _GROUP, "one", {self._stream: ">"}, count=100, block=_BLOCK_MS, noack=True
                )
                now = time.perf_counter_ns()
                for _, fields in found[0][1] if found else ():
                    self.samples_ms.append((now - int(fields[b"at"])) / 1e6)

    def _follow_stdin(self) -> None:
        sys.stdin.read()
        self._stopped.set()


def samples_of(output: str) -> list[float]:
    """Read what a probe has printed; nothing of one that broke."""
    lines = output.split("\n")
    for line in lines:
        if line.startswith("["):
            found: list[float] = json.loads(line)
            return found
    return []


if __name__ == "__main__":
    Probe(sys.argv[1], sys.argv[2]).run()
