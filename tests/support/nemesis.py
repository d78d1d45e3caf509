"""Who is killed when: a schedule that a seed decides, and the thread of time that carries it out."""

from __future__ import annotations

import signal
import time
from random import Random
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.processes import Service

Act = Literal["kill", "pause", "resume"]
_EVERY_S = (2.0, 6.0)


class Event(NamedTuple):
    """One act upon one service, `at_s` seconds after the beginning."""

    at_s: float
    act: Act
    target: str

    def __str__(self) -> str:
        return f"{self.at_s:.2f} s {self.act} {self.target}"


def schedule(
    seed: int, seconds: float, *, workers: Sequence[str], schedulers: Sequence[str], pause_s: float
) -> list[Event]:
    """The same acts for the same seed: a worker and a scheduler every 2 to 6 s, some only paused.

    A paused process is resumed after `pause_s`, and before the end.
    """
    events: list[Event] = []
    for part, targets in enumerate((workers, schedulers)):
        rng = Random(seed * 2 + part)
        busy_until = dict.fromkeys(targets, 0.0)
        for at_s in _moments(rng, seconds):
            target = rng.choice(targets)
            pauses = rng.random() < 0.2 and at_s + pause_s < seconds
            if busy_until[target] > at_s:
                continue
            if pauses:
                busy_until[target] = at_s + pause_s
                events += (Event(at_s, "pause", target), Event(at_s + pause_s, "resume", target))
            else:
                events.append(Event(at_s, "kill", target))
    return sorted(events)


def _moments(rng: Random, seconds: float) -> Iterator[float]:
    at_s = rng.uniform(*_EVERY_S)
    while at_s < seconds:
        yield at_s
        at_s += rng.uniform(*_EVERY_S)


def carry_out(events: Sequence[Event], services: Sequence[Service], seconds: float) -> set[int]:
    """Do what is scheduled, and return after `seconds`; who is killed is started again at once.

    Returns the process ids of those that were paused.
    """
    paused: set[int] = set()
    named = {service.name: service for service in services}
    began = time.monotonic()
    for event in events:
        time.sleep(max(0.0, began + event.at_s - time.monotonic()))
        service = named[event.target]
        if event.act == "kill":
            service.send(signal.SIGKILL)
            service.wait()
            service.start()
        else:
            paused.add(service.pid)
            service.send(signal.SIGSTOP if event.act == "pause" else signal.SIGCONT)
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    return paused
