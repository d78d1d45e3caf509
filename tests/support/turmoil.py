"""Load on a scene while a test does things to its servers, as often as the run is to be thorough."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.support.load import LoadThread

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.support.history import History
    from tests.support.scene import Scene

# How often each thing is done to a server: 2 times, or as the environment says (10 for a full run).
TIMES = int(os.environ.get("REDJOB_CHAOS_TIMES", "2"))
_PER_S = 120.0
_BURST_EVERY_S = 4.0
_STARTS_BETWEEN = 100


@contextmanager
def loaded(stage: Scene) -> Generator[None]:
    """Keep a load up inside; afterwards wait until every job has ended."""
    load = LoadThread(stage.load, per_s=_PER_S, burst_every_s=_BURST_EVERY_S)
    load.start()
    try:
        yield
    finally:
        load.stop()
    stage.drain(within_s=60.0)


def wait_busy(stage: Scene) -> None:
    """Wait until the load has had its effect: as many jobs have begun as make a round of each kind."""
    least = len(stage.began()) + _STARTS_BETWEEN
    stage.wait(lambda: len(stage.began()) >= least, within_s=30.0, what="jobs begin")


def told(history: History) -> str:
    """What a run had to bear, for people."""
    extra = sum(len(starts) - 1 for starts in history.begun_of.values())
    return (
        f"jobs {len(history.asked)}, starts {len(history.began)}, extra {extra}, "
        f"lines about a server that went back {len(history.named)}, lost {len(history.gone)}"
    )
