"""A primary and a replica under three sentinels, for tests of failover without a cluster."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING, Any, Self

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from redjob.embedded import EmbeddedServer
from redjob.embedded.guard import Guard
from redjob.embedded.ports import free_ports
from tests.support.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

SERVICE = "redjob"  # the name under which sentinels know the primary
_HOST = "127.0.0.1"
_SENTINELS = 3
_QUORUM = 2
_PORT_TRIES = 8
_WITHIN_S = 30.0

# Down after 1 s: tests should not wait longer for a failover than they must.
_CONFIG = f"""\
bind {_HOST}
sentinel monitor {SERVICE} {_HOST} {{primary_port}} {_QUORUM}
sentinel down-after-milliseconds {SERVICE} 1000
sentinel failover-timeout {SERVICE} 2000
sentinel parallel-syncs {SERVICE} 1
"""

# Ask servers and tell each other more often than each 10 s and 2 s: replicas and sentinels are
# found, and new roles noted, in that time.
_PERIODS_MS = ("info-period", 200, "publish-period", 200)


class Sentinel:
    """One sentinel process; unlike a server it needs a file of its own to write to."""

    def __init__(self, directory: Path, program: Path, primary_port: int) -> None:
        """Start it on a free port and wait until it answers."""
        directory.mkdir(parents=True)
        self._config = directory / "sentinel.conf"
        self._log = directory / "sentinel.log"
        for _ in range(_PORT_TRIES):
            (self.port,) = free_ports(1)
            text = _CONFIG.format(primary_port=primary_port)
            self._config.write_text(f"port {self.port}\n{text}")
            self._popen, self._guard = self._launch(program)
            self.redis: Any = _client(self.port)
            if self._wait_up():
                self.redis.execute_command("SENTINEL", "DEBUG", *_PERIODS_MS)
                return
            self.kill()
        message = f"no sentinel in {_PORT_TRIES} tries: {self._log.read_text()}"
        raise OSError(message)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._popen.pid

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._popen.poll() is None

    def master(self) -> dict[str, str]:
        """What this sentinel knows of the primary."""
        words: list[str] = self.redis.execute_command("SENTINEL", "MASTER", SERVICE)
        return _pairs(words)

    def kill(self) -> None:
        """End it as a crash would; it does not come back."""
        self.redis.close()
        self._popen.kill()
        self._popen.wait()
        self._guard.release()

    def _launch(self, program: Path) -> tuple[subprocess.Popen[bytes], Guard]:
        with self._log.open("wb") as log:
            popen = subprocess.Popen(
                [program, self._config, "--sentinel"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._config.parent,
                start_new_session=True,
            )
        return popen, Guard(popen.pid)

    def _wait_up(self) -> bool:
        """Whether it answers; False when its port was taken by somebody else."""
        deadline = time.monotonic() + _WITHIN_S
        while time.monotonic() < deadline:
            if not self.running:
                log = self._log.read_text()
                assert "Address already in use" in log, log
                return False
            try:
                # A stranger that won the port may be answering: ask who it is.
                if self.redis.info("server")["process_id"] == self.pid:
                    return True
            except RedisError:
                time.sleep(0.01)
        return False


class SentinelServers:
    """The five processes; a context manager. After a failover the roles of the servers differ.

    A server that is started again comes up in its first role, as it has no file in which sentinels
    could note another; they correct it a few seconds later.
    """

    def __init__(self, directory: Path, program: Path, *, extra_args: Sequence[str] = ()) -> None:
        """Set them up; nothing runs before `start`."""
        self.servers: list[EmbeddedServer] = []
        self.sentinels: list[Sentinel] = []
        self._directory = directory
        self._program = program
        # Sync at once: a replica that has never been in step cannot be chosen.
        self._extra_args = ("--repl-diskless-sync-delay", "0", *extra_args)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The URL for clients: every sentinel, then the name of the primary and the database."""
        hosts = ",".join(f"{_HOST}:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"

    def start(self) -> Self:
        """Start all and wait until the sentinels know each other and the replica is in step."""
        try:
            primary = self._start_server("primary")
            self._start_server("replica", "--replicaof", _HOST, str(primary.port))
            for number in range(_SENTINELS):
                directory = self._directory / f"sentinel-{number}"
                self.sentinels.append(Sentinel(directory, self._program, primary.port))
            self.wait_healthy()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End all processes, the sentinels first: nobody is to be promoted any more."""
        for sentinel in self.sentinels:
            sentinel.kill()
        for server in self.servers:
            server.kill()

    def primary(self) -> EmbeddedServer | None:
        """The server that every sentinel names and that says so itself; None while they differ."""
        try:
            ports = {int(sentinel.master()["port"]) for sentinel in self._up()}
            named = [server for server in self.servers if {server.port} == ports]
            return next((server for server in named if _role(server)[0] == "master"), None)
        except RedisError:
            return None

    def wait_healthy(self, *, within_s: float = _WITHIN_S) -> None:
        """Wait until there is a primary, known to all sentinels with its replica in step."""
        wait_until(self._healthy, within_s=within_s, what="sentinels, primary and replica agree")

    def wait_primary_after(
        self, old: EmbeddedServer, *, within_s: float = _WITHIN_S
    ) -> EmbeddedServer:
        """Wait until another server than `old` is the primary for all, and return it."""
        found: list[EmbeddedServer] = []

        def replaced() -> bool:
            now = self.primary()
            if now is not None and now is not old:
                found.append(now)
            return bool(found)

        wait_until(replaced, within_s=within_s, what="sentinels promote the replica")
        return found[0]

    def fail_over(self, *, within_s: float = _WITHIN_S) -> EmbeddedServer:
        """Let the sentinels swap the roles, and return the new primary."""
        old = self.primary()
        assert old is not None, "the sentinels do not agree on a primary"
        self._up()[0].redis.execute_command("SENTINEL", "FAILOVER", SERVICE)
        return self.wait_primary_after(old, within_s=within_s)

    def _start_server(self, name: str, *args: str) -> EmbeddedServer:
        server = EmbeddedServer(
            self._directory / name, binary=self._program, extra_args=(*self._extra_args, *args)
        )
        self.servers.append(server)
        return server.start()

    def _up(self) -> list[Sentinel]:
        return [sentinel for sentinel in self.sentinels if sentinel.running]

    def _healthy(self) -> bool:
        primary = self.primary()
        if primary is None:
            return False
        replicas = [server for server in self.servers if server.running and server is not primary]
        up = self._up()
        try:
            return all(
                _role(server)[2:4] == [primary.port, "connected"] for server in replicas
            ) and all(_sees(sentinel, len(up) - 1, len(replicas)) for sentinel in up)
        except RedisError:  # sentinels cut the clients of a server whose role they change
            return False


def _sees(sentinel: Sentinel, others: int, replicas: int) -> bool:
    """Whether a sentinel could lead a failover: it knows the others and who is in step."""
    master = sentinel.master()
    rows: list[list[str]] = sentinel.redis.execute_command("SENTINEL", "REPLICAS", SERVICE)
    in_step = [row for row in rows if _pairs(row)["master-link-status"] == "ok"]
    return (
        master["flags"] == "master"
        and int(master["num-other-sentinels"]) >= others
        and len(in_step) >= replicas
    )


def _pairs(words: list[str]) -> dict[str, str]:
    return dict(zip(words[::2], words[1::2], strict=True))


def _role(server: EmbeddedServer) -> list[Any]:
    """What a server says of itself: its role, and a replica whom it follows and how well."""
    client = _client(server.port)
    try:
        role: list[Any] = client.execute_command("ROLE")
    finally:
        client.close()
    return role


def _client(port: int) -> Any:
    return Redis(
        host=_HOST,
        port=port,
        protocol=2,  # the newer one turns lists of pairs into dicts, and not each client speaks it
        decode_responses=True,
        socket_timeout=5,
        retry=Retry(NoBackoff(), 0),  # what a server refuses at this moment is what is to be seen
    )
