"""Whom Postgres runs as: it refuses to be root; under postgres_binary, postgres_data and postgres."""

from __future__ import annotations

import os
import pwd
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from redjob.embedded.errors import ServerStartFailed

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

_ROOT = 0
_DESCRIPTORS = Path("/proc/self/fd")
# What a program needs to be found and to find its libraries; not the user's PGPORT, not secrets.
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR")


@dataclass(frozen=True, slots=True)
class Reachable:
    """A path as a child must name it, and the descriptors that the child must inherit for that."""

    name: str
    descriptors: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Account:
    """A user to run programs as; without a uid whoever runs this process."""

    uid: int | None = None
    gid: int | None = None

    def own(self, path: Path) -> None:
        """Make a path this user's."""
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)

    @contextmanager
    def reach(self, path: Path) -> Generator[Reachable]:
        """Name a directory so that this user gets there.

        The user may not be allowed to enter what is above it: a home, a temporary directory. A name
        under /proc/self/fd leads straight to what this process has opened.
        """
        if self.uid is None or not _DESCRIPTORS.is_dir():
            yield Reachable(str(path))
            return
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield Reachable(f"{_DESCRIPTORS}/{descriptor}", (descriptor,))
        finally:
            os.close(descriptor)

    def run(
        self, arguments: Sequence[str], *, lines: str = "", descriptors: Sequence[int] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end and give it `lines` to read. Raises OSError."""
        return subprocess.run(
            arguments,
            input=lines,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            cwd="/",
            env=_environment(),
            pass_fds=descriptors,
            user=self.uid,
            group=self.gid,
            extra_groups=None if self.uid is None else [],
        )

    def spawn(
        self, arguments: Sequence[str], log: IO[bytes], *, descriptors: Sequence[int] = ()
    ) -> subprocess.Popen[bytes]:
        """Start a program in a session of its own. Raises OSError."""
        return subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=_environment(),
            pass_fds=descriptors,
            start_new_session=True,
            user=self.uid,
            group=self.gid,
            extra_groups=None if self.uid is None else [],
        )


def account_for_postgres() -> Account:
    """This process' own user, and `nobody` instead of root. Raises ServerStartFailed."""
    if os.geteuid() != _ROOT:
        return Account()
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        reason = "Postgres does not run as root, and there is no user nobody: use another user"
        raise ServerStartFailed(reason) from None
    return Account(nobody.pw_uid, nobody.pw_gid)


def _environment() -> dict[str, str]:
    # A locale that is there, and messages in English: some are looked for.
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return passed_on | {"LC_ALL": "C"}
