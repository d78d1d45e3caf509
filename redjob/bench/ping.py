"""PING from a process of its own, every few ms: how long the server makes anybody wait."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time

from redjob.bench.bare import connect
from redjob.bench.probe import READY

EVERY_S = 0.005


def measure(url: str) -> None:
    """Ping until stdin ends; print `ready`, and at the end the times in ms as JSON."""
    stopped = threading.Event()

    def follow_stdin() -> None:
        sys.stdin.read()
        stopped.set()

    with contextlib.closing(connect(url)) as client:
        client.ping()  # connects
        threading.Thread(target=follow_stdin, daemon=True).start()
        print(READY, flush=True)
        samples_ms: list[float] = []
        while not stopped.wait(EVERY_S):
            began = time.perf_counter()
            client.ping()
            samples_ms.append(round((time.perf_counter() - began) * 1000, 3))
    print(json.dumps(samples_ms), flush=True)


if __name__ == "__main__":
    measure(sys.argv[1])
