"""The data directory of an embedded Postgres, made once, and its password; under postgres."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from redjob.embedded.errors import ServerStartFailed

if TYPE_CHECKING:
    from redjob.embedded.account import Account, Reachable
    from redjob.embedded.postgres_binary import PostgresBinaries

SUPERUSER, DATABASE = "postgres", "redjob"
_PASSWORD_FILE = "password"  # noqa: S105 - where it is, not what it is
_LOCALES = ("C.UTF-8", "C")  # macOS before 15 and some small images lack the first
_ACCESS = "host all all 127.0.0.1/32 scram-sha-256\n"
_READY_LINE = 7


def data_in(directory: Path) -> Path:
    """Where the server in `directory` has its files."""
    return directory / "data"


def open_data(
    directory: Path, binaries: PostgresBinaries, account: Account, *, durable: bool
) -> str:
    """Return the password of the data directory; make both where there is none.

    Raises:
        OSError: What is there belongs to another user.
        ServerStartFailed: It is another version's, or making it failed.
    """
    data = data_in(directory)
    if not data.is_dir():
        _make(directory, binaries, account, durable=durable)
    version = (data / "PG_VERSION").read_text().strip()
    if version != str(binaries.major):
        reason = (
            f"{data} was made by Postgres {version}, and {binaries.folder} is {binaries.version}: "
            f"install Postgres {version}, or move the directory away"
        )
        raise ServerStartFailed(reason)
    _drop_stale_pid(data / "postmaster.pid")
    return (directory / _PASSWORD_FILE).read_text()


def is_ready(data: Path, pid: int) -> bool:
    """Whether the server that runs as `pid` has recovered and lets clients in, as it notes itself."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return False
    return (
        len(lines) > _READY_LINE and lines[0] == str(pid) and lines[_READY_LINE].strip() == "ready"
    )


def _make(directory: Path, binaries: PostgresBinaries, account: Account, *, durable: bool) -> None:
    """Make it beside its place first: what a crash leaves half done is never taken for whole."""
    unfinished = directory / "data.new"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    account.own(unfinished)
    password = secrets.token_urlsafe(24)
    with account.reach(unfinished) as place:
        _initdb(place, binaries, account, durable=durable)
        _first_words(place, binaries, account, password)
    # Instead of what initdb wrote: one way in, and none without the password.
    (unfinished / "pg_hba.conf").write_text(_ACCESS)
    password_file = directory / _PASSWORD_FILE
    password_file.unlink(missing_ok=True)
    password_file.touch(mode=0o600)
    password_file.write_text(password)
    unfinished.rename(data_in(directory))


def _initdb(
    place: Reachable, binaries: PostgresBinaries, account: Account, *, durable: bool
) -> None:
    arguments = [
        binaries.program("initdb"),
        *("-D", place.name),
        *("-U", SUPERUSER),
        *("-A", "reject"),
        *("-E", "UTF8"),
        *(() if durable else ("--no-sync",)),
    ]
    told = ""
    for locale in _LOCALES:
        done = account.run([*arguments, f"--locale={locale}"], descriptors=place.descriptors)
        if done.returncode == 0:
            return
        told = done.stderr
        if "locale" not in told:
            break
    reason = f"{binaries.program('initdb')} failed"
    raise ServerStartFailed(reason, told.strip())


def _first_words(
    place: Reachable, binaries: PostgresBinaries, account: Account, password: str
) -> None:
    """Set the password and make the database, in the mode that needs no client."""
    done = account.run(
        [binaries.program("postgres"), "--single", "-D", place.name, "postgres"],
        lines=f"ALTER ROLE {SUPERUSER} PASSWORD '{password}'\nCREATE DATABASE {DATABASE}\n",
        descriptors=place.descriptors,
    )
    # A statement that failed does not show in the exit code.
    failures = [line for line in done.stderr.splitlines() if "ERROR:" in line or "FATAL:" in line]
    if done.returncode != 0 or failures:
        reason = f"{binaries.program('postgres')} --single ended with code {done.returncode}"
        raise ServerStartFailed(reason, "\n".join(failures))


def _drop_stale_pid(pid_file: Path) -> None:
    """Remove the pid file of a server that is gone, when its pid is somebody's all the same.

    Postgres would take whoever that is for the server: another process, or its own zombie, which an
    orphan stays for ever where process 1 reaps nothing, as in many containers. Backends that are
    left it recognises by their shared memory.
    """
    if not Path("/proc/self/cmdline").exists():
        return
    try:
        pid = pid_file.read_text().split("\n", 1)[0]
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return
    if Path(arguments[0].decode(errors="replace")).name != "postgres":
        pid_file.unlink()
