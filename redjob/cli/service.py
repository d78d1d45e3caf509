"""One service process: its loop, its signals, and the server it needs; under every service command.

A service waits for a server that is down, refuses one that would lose jobs, drains at the first
SIGTERM or SIGINT (exit code 0) and ends at once at the second.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from types import FrameType
from typing import Any, NamedTuple

from redjob.clock import Clock
from redjob.config import Connection
from redjob.errors import ServerUnsuitable, StoreUnavailable
from redjob.store.aio import AsyncStore
from redjob.store.facts import check_server
from redjob.store.settings import StoreSettings, settings_from_url

log = logging.getLogger("redjob.service")

CHECK_EVERY_S = 60.0  # an eviction policy can be set while redjob runs
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_COLLECTOR = (10_000, 10, 10)  # more than what a worker has in flight; Python's own is 700, 10, 10

# What a service is: given a store and the event that says "stop", it runs until it has drained.
Service = Callable[[AsyncStore, asyncio.Event], Awaitable[None]]


class Place(NamedTuple):
    """Where a service works."""

    settings: StoreSettings
    namespace: str
    partitions: int | None
    allow_eviction: bool


def place_of(connection: Connection) -> Place:
    """The place that the options name. Raises InvalidArgument for a URL that is none."""
    settings = settings_from_url(connection.redis_url)
    return Place(settings, connection.namespace, connection.partitions, connection.allow_eviction)


def run_service(
    role: str, place: Place, service: Service, *, check_every_s: float = CHECK_EVERY_S
) -> None:
    """Run a service until it is told to stop; its server is checked again every `check_every_s`.

    Raises ServerUnsuitable, and whatever ends the service by itself.
    """
    _calm_collector()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_main(role, place, service, check_every_s))


def _calm_collector() -> None:
    """Let the garbage collector look for cycles less often, and never at what was imported.

    A service holds thousands of small objects that reference counting frees within milliseconds: at
    Python's default the collector took an eighth of a busy worker's time to find next to nothing.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTOR)


async def _main(role: str, place: Place, service: Service, check_every_s: float) -> None:
    stop = asyncio.Event()
    _listen_to_signals(stop)
    store = AsyncStore(place.settings, place.namespace, partitions=place.partitions)
    log.info("starting role=%s pid=%d server=%s", role, os.getpid(), place.settings.shown)
    check = asyncio.create_task(_check_until_good(store, place))
    try:
        if await _first(check, stop):
            watch = asyncio.create_task(_watch_server(store, place, check_every_s))
            try:
                await service(store, stop)
            finally:
                watch.cancel()
        log.info("stopped role=%s pid=%d", role, os.getpid())
    finally:
        check.cancel()
        await store.aclose()


async def run_until(stop: asyncio.Event, *services: Coroutine[Any, Any, None]) -> None:
    """Run services until `stop`, then cancel them; the first that ends by an error ends all."""
    tasks = [asyncio.create_task(service) for service in services]
    stopping = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in (stopping, *tasks):
            task.cancel()
        await asyncio.wait([stopping, *tasks])


def end_with_stdin(grace_s: float, clock: Clock) -> None:
    """Stop this process when its stdin ends: the parent that holds the other end has died.

    A pipe and not PR_SET_PDEATHSIG: it works on macOS, and does not fire when the parent's starting
    thread ends. A thread, so that a blocked event loop does not keep it from being seen.
    """
    descriptor = sys.stdin.fileno()

    def follow() -> None:
        # Not by sys.stdin: its lock, held here, would abort the interpreter when it shuts down.
        while os.read(descriptor, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        clock.sleep(grace_s + 5)
        os._exit(1)

    threading.Thread(target=follow, name="redjob-parent", daemon=True).start()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes event loops here: uvloop where it is installed."""
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module(
            "uvloop"
        ).new_event_loop
    except ImportError:
        return asyncio.new_event_loop
    return factory


def _listen_to_signals(stop: asyncio.Event) -> None:
    """The first signal sets `stop`, the second ends the process, whatever it is doing.

    By signal.signal: a handler of the loop would wait for a loop that a task blocks.
    """
    loop = asyncio.get_running_loop()

    def on_signal(number: int, frame: FrameType | None) -> None:
        del frame
        if stop_asked:
            os._exit(128 + number)
        stop_asked.append(number)
        loop.call_soon_threadsafe(stop.set)

    stop_asked: list[int] = []
    _keep_from_children({number: signal.signal(number, on_signal) for number in _SIGNALS})


def _keep_from_children(handlers: dict[signal.Signals, Any]) -> None:
    """Give a process that a task forks the handlers from before: it is to end like any other.

    Blocked over the fork: Python forgets signals that come at a child's first moment.
    """
    masks = threading.local()

    def hold() -> None:
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, handlers)

    def go_on() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def go_on_as_before() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        go_on()

    os.register_at_fork(before=hold, after_in_parent=go_on, after_in_child=go_on_as_before)


async def _first(check: asyncio.Task[None], stop: asyncio.Event) -> bool:
    """Wait for the server; return False when the process is told to stop before. Raises as the check."""
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([check, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not check.done():
        return False
    check.result()
    return True


async def _check_until_good(store: AsyncStore, place: Place) -> None:
    """Wait for a server that answers. Raises ServerUnsuitable for one that must not be used."""
    while True:
        try:
            facts = await store.facts()  # says every 5 s that it waits
        except StoreUnavailable as exc:
            log.warning("waiting_for_server server=%s reason=%s", place.settings.shown, exc.reason)
            continue
        warnings = [check_server(one, allow_eviction=place.allow_eviction) for one in facts]
        for warning in sorted({text for texts in warnings for text in texts}):
            log.warning("server_warning server=%s reason=%s", place.settings.shown, warning)
        labels = ",".join(sorted({one.label for one in facts}))
        log.info(
            "server_checked server=%s version=%s count=%d", place.settings.shown, labels, len(facts)
        )
        return


async def _watch_server(store: AsyncStore, place: Place, every_s: float) -> None:
    """Check again and again; a running service only says what it finds: stopping would help nobody."""
    while True:
        await asyncio.sleep(every_s)
        try:
            for facts in await store.facts():
                check_server(facts, allow_eviction=place.allow_eviction)
        except StoreUnavailable:
            continue  # said by everything that works
        except ServerUnsuitable as exc:
            log.error(  # noqa: TRY400 - expected; where it was raised tells nobody anything
                "server_unsuitable server=%s reason=%s", place.settings.shown, exc
            )
