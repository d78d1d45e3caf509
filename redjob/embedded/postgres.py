"""A Postgres of redjob's own, for demo, dev, bench and tests; stands beside the chain.

It listens on 127.0.0.1 alone, has no Unix socket, and asks for a password that is random and kept
in a file that only its owner can read. As root it runs as `nobody`, to whom its data belongs.
"""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import IO, TYPE_CHECKING

from redjob.embedded.account import Account, account_for_postgres
from redjob.embedded.errors import ServerStartFailed
from redjob.embedded.postgres_binary import PostgresBinaries, require_postgres, runnable_by
from redjob.embedded.postgres_data import DATABASE, SUPERUSER, data_in, is_ready, open_data
from redjob.embedded.process import HOST, ServerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping

# A machine that crashes may lose the last commits, or all; a process that is killed loses nothing.
_QUICK = {"fsync": "off", "full_page_writes": "off"}


class EmbeddedPostgres(ServerProcess):
    """A Postgres process on 127.0.0.1 that keeps its data in `directory`.

    A context manager: started on entry, stopped on exit. Not for use from several threads.
    """

    _STOP = signal.SIGINT  # SIGTERM would wait for clients to leave
    _STILL_HELD = (
        "pre-existing shared memory block"  # backends see a little later that it was killed
    )

    def __init__(
        self,
        directory: Path | str,
        *,
        port: int = 0,
        binaries: PostgresBinaries | None = None,
        durable: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Set a server up; nothing runs before `start`.

        Args:
            directory: Created when missing; holds the data, the password, the log and the pid file.
            port: 0 takes a free one.
            binaries: By default the first that is found at the first start.
            durable: False waits for no disk: quicker, for tests only.
            settings: Of Postgres, such as `{"max_connections": "20"}`; they win over redjob's.
        """
        super().__init__(directory, port=port)
        self._binaries = binaries
        self._durable = durable
        self._settings = dict(settings or {})
        self._account = Account()
        self._password = ""

    @property
    def url(self) -> str:
        """The URL for clients, with the password; final once the server was started the first time."""
        return f"postgresql://{SUPERUSER}:{self._password}@{HOST}:{self.port}/{DATABASE}"

    def _find_program(self) -> None:
        self._binaries = self._binaries or require_postgres()

    def _mark(self) -> str:
        # A setting that means nothing to Postgres: the data directory can have another name there.
        return f"redjob.directory={self.directory}"

    def _prepare(self) -> None:
        assert self._binaries is not None, "found before"
        try:
            self._account = account_for_postgres()
            self._binaries = runnable_by(self._account, self._binaries)
            self._password = open_data(
                self.directory, self._binaries, self._account, durable=self._durable
            )
        except OSError as exc:
            reason = f"{exc.filename}: {exc.strerror}"
            raise ServerStartFailed(reason) from exc

    def _spawn(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        assert self._binaries is not None, "found before"
        with self._account.reach(data_in(self.directory)) as place:
            arguments = [self._binaries.program("postgres"), "-D", place.name]
            for name, value in self._all_settings().items():
                arguments += ["-c", f"{name}={value}"]
            arguments += ["-c", self._mark()]
            return self._account.spawn(arguments, log, descriptors=place.descriptors)

    def _answers(self, pid: int) -> bool:
        return is_ready(data_in(self.directory), pid)

    def _all_settings(self) -> dict[str, str]:
        own = {
            "listen_addresses": HOST,
            "port": str(self.port),
            "unix_socket_directories": "",
            "timezone": "UTC",
            "log_timezone": "UTC",
        }
        return own | ({} if self._durable else _QUICK) | self._settings
