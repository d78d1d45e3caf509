"""One run: its server, namespace, tally and processes; everything ends with it."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from redjob.app import Redjob
from redjob.bench.app import QUEUE, TALLY, noop_of
from redjob.bench.bare import BareClient
from redjob.bench.probe import READY, samples_of
from redjob.bench.processes import Service
from redjob.bench.servers import Kind, Server, other_server, own_cluster, own_server
from redjob.bench.tally import Tally
from redjob.bound import BoundTask
from redjob.calls.reads import journal_position
from redjob.ids import new_token
from redjob.keys import Keyspace, QueueKeys
from redjob.partitions import SLOTS
from redjob.store.namespace import default_partitions
from redjob.store.settings import settings_from_url
from redjob.store.sync import SyncStore

START_S = 30.0  # for a service to be there
_LOOK_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line decides. `jobs` None takes the benchmark's own number, tenths if quick."""

    jobs: int | None = None
    concurrency: int = 512
    workers: int = 1
    schedulers: int = 3
    kills: int | None = None
    url: str | None = None
    server: Kind | None = None
    preload: str | None = None
    runs: int = 3
    quick: bool = False

    def jobs_or(self, usual: int) -> int:
        """How many jobs a run has."""
        if self.jobs is not None:
            return self.jobs
        return usual // 10 if self.quick else usual


class Stage:
    """What a benchmark works with; made by `staged`."""

    def __init__(self, server: Server, namespace: str, tally: Tally, directory: Path) -> None:
        self.server = server
        self.client: BareClient = server.client
        self.namespace = namespace
        self.tally = tally
        settings = settings_from_url(server.url)
        self.keys = Keyspace(namespace, default_partitions(settings))
        self.app = Redjob(server.url, namespace=namespace)
        self.noop: BoundTask[[int, str], object] = noop_of(self.app)
        self.store = SyncStore(settings, namespace)
        self.probe_ms: list[float] = []
        self.ping_ms: list[float] = []
        self._directory = directory
        self._names = 0

    @property
    def queues(self) -> list[QueueKeys]:
        """Keys of the benchmark's queue in every partition."""
        return [part.queue(QUEUE) for part in self.keys.parts]

    @contextlib.contextmanager
    def scheduler(self) -> Generator[Service]:
        """Run a scheduler; inside, it owns every partition."""
        arguments = ["redjob", "scheduler", "--depth-limit", "none", "--partitions"]
        with self._service("scheduler", [*arguments, str(self.keys.partitions)]) as service:
            self.until(service, self._all_open)
            yield service

    @contextlib.contextmanager
    def worker(self, concurrency: int) -> Generator[Service]:
        """Run a worker; it may still be starting."""
        arguments = ["redjob", "worker", "redjob.bench.app:app", "-c", str(concurrency)]
        with self._service("worker", arguments) as service:
            yield service

    @contextlib.contextmanager
    def warm_workers(self, count: int, concurrency: int, spare: range) -> Generator[list[Service]]:
        """Run workers that have each done a job; `spare` are numbers of jobs for that, many."""
        with contextlib.ExitStack() as stack:
            started: list[Service] = []
            for place in range(count):
                started.append(stack.enter_context(self.worker(concurrency)))
                self.until(started[-1], lambda: "worker_started" in self.said(started[-1]))
                del place
            for index in spare:
                self.noop.enqueue(index, "")
            self.until(started[-1], lambda: self.tally.totals(spare).lost == 0)
            yield started

    @contextlib.contextmanager
    def probe(self) -> Generator[None]:
        """Time the bare server beside what happens inside, into `probe_ms`."""
        stream = f"{self.keys.parts[0].base}probe"  # the first of the nodes has the first partition
        with self._timed("probe", [self.server.node_url, stream], self.probe_ms):
            yield

    @contextlib.contextmanager
    def ping(self) -> Generator[None]:
        """Time PING beside what happens inside, into `ping_ms`."""
        with self._timed("ping", [self.server.node_url], self.ping_ms):
            yield

    @contextlib.contextmanager
    def _timed(self, kind: str, arguments: list[str], into: list[float]) -> Generator[None]:
        words = [f"redjob.bench.{kind}", *arguments]
        with Service(kind, words, {}, self._directory) as service:
            self.until(service, lambda: READY in service.output())
            yield
            into[:] = samples_of(service.stop())

    def streamed(self) -> int:
        """How many entries the streams of the benchmark's queue have."""
        return self.counted("XLEN", [queue.stream for queue in self.queues])

    def counted(self, command: str, keys: Sequence[str]) -> int:
        """The sum of what a command says of keys, one of each partition."""
        nodes = self.server.nodes
        pipes = [node.pipeline(transaction=False) for node in nodes]
        for part, key in zip(self.keys.parts, keys, strict=True):
            pipes[part.slot * len(nodes) // SLOTS].execute_command(command, key)
        return sum(int(found) for pipe in pipes for found in pipe.execute())

    def wait(
        self,
        done: Callable[[], int],
        goal: int,
        label: str,
        *,
        limit_s: float,
        services: Sequence[Service] = (),
    ) -> bool:
        """Wait until `done` reaches the goal, with a bar on a terminal; whether it came to that."""
        deadline = time.monotonic() + limit_s
        shown = 0
        with bar(goal, label) as progress:
            while True:
                for service in services:
                    service.check()
                now_done = done()
                progress(now_done - shown)
                shown = now_done
                if now_done >= goal:
                    return True
                if time.monotonic() > deadline:
                    return False
                time.sleep(_LOOK_S)

    def _service(self, name: str, arguments: Sequence[str]) -> Service:
        self._names += 1
        place = [
            *("--redis-url", self.server.url, "--namespace", self.namespace),
            *("--log-level", "info", "--exit-with-stdin"),
        ]
        environment = {TALLY: str(self.tally.path)}
        return Service(f"{name}-{self._names}", [*arguments, *place], environment, self._directory)

    def until(self, service: Service, ready: Callable[[], bool]) -> None:
        """Wait until a service is as far as it should be."""
        deadline = time.monotonic() + START_S
        while not ready():
            service.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{service.name} is not ready after {START_S:g} s")
            time.sleep(_LOOK_S)

    def _all_open(self) -> bool:
        found = [self.store.query(journal_position(part)) for part in self.keys.parts]
        return all(position is not None and position.epoch for position in found)

    @staticmethod
    def said(service: Service) -> str:
        """What a service has logged and printed so far."""
        return service.log.read_text(errors="replace") + service.output()

    def close(self) -> None:
        """Close connections and files."""
        self.app.close()
        self.store.close()
        self.tally.close()


@contextlib.contextmanager
def staged(
    options: Options, jobs: int, arguments: Sequence[str] = (), *, primaries: int | None = None
) -> Generator[Stage]:
    """Set a run up for `jobs` numbered jobs; `arguments` are options of a server of our own.

    `primaries` makes that a cluster of so many, without replicas.
    """
    # A server of our own has the usual namespace: its length is in every key, so in every figure.
    namespace = f"bench-{new_token()}" if options.url else "redjob"
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="redjob-bench-")))
        if primaries:
            place = own_cluster(options.server, primaries)
        elif options.url:
            place = other_server(options.url, namespace)
        else:
            place = own_server(options.server, arguments, preload=options.preload)
        server = stack.enter_context(place)
        stage = Stage(server, namespace, Tally.create(directory / "tally", jobs), directory)
        stack.callback(stage.close)
        yield stage


@contextlib.contextmanager
def bar(length: int, label: str) -> Generator[Callable[[int], None]]:
    """A progress bar on a terminal, nothing elsewhere; yields what moves it on."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(length=length, label=label.ljust(24), file=sys.stderr) as shown:
        yield shown.update
