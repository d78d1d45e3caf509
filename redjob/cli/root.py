"""The `redjob` command: its subcommands, loaded when they are asked for, and what its errors look like."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import NoReturn

import click

from redjob.errors import InvalidArgument, RedjobError, StoreUnavailable

DONE, FAILED, WRONG_USE, NOT_REACHABLE = 0, 1, 2, 3
_INTERRUPTED = 130  # as shells say it: 128 + SIGINT

_COMMANDS = {
    "bench": "redjob.bench.cli:bench",
    "dead": "redjob.cli.dead:dead",
    "dev": "redjob.cli.dev:dev",
    "doctor": "redjob.cli.doctor:doctor",
    "enqueue": "redjob.cli.enqueue:enqueue",
    "functions": "redjob.cli.functions:functions",
    "job": "redjob.cli.job:job",
    "move": "redjob.cli.move:move",
    "queues": "redjob.cli.queues:queues",
    "scheduler": "redjob.cli.services:scheduler",
    "sweeper": "redjob.cli.services:sweeper",
    "worker": "redjob.cli.worker:worker",
}


_EPILOG = """
\b
Try it with nothing installed:  redjob dev
On a Redis of yours:            redjob scheduler, redjob sweeper, redjob worker app:app

Every option can be set in the environment: --redis-url is REDJOB_REDIS_URL.
Exit codes: 0 done, 1 failed, 2 wrong use, 3 Redis not reachable.
"""


class Commands(click.Group):
    """A group that imports a subcommand only when it is used: a worker needs no benchmarks."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of what is installed."""
        del ctx
        return [name for name, place in _COMMANDS.items() if _is_there(place.partition(":")[0])]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a subcommand; None for a name that is not one."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module, _, attribute = _COMMANDS[cmd_name].partition(":")
        found: click.Command = getattr(importlib.import_module(module), attribute)
        return found


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # not even its package
        return False


@click.group(
    cls=Commands,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(metadata.version("redjob"), prog_name="redjob")
def cli() -> None:
    """A distributed job scheduler on Redis or Valkey."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command line and exit with its code."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; return its exit code, with an error told in one line on stderr."""
    # What the store logs while it waits is for services; a command ends with one line of its own.
    logging.getLogger("redjob").addHandler(logging.NullHandler())
    try:
        code = cli.main(args=arguments, prog_name="redjob", standalone_mode=False)
    except (KeyboardInterrupt, click.Abort):
        return _INTERRUPTED
    except BrokenPipeError:  # `redjob dead list | head`: whoever read has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception as exc:
        if os.environ.get("REDJOB_DEBUG"):
            raise
        message, failed = _told(exc)
        click.echo(f"redjob: {' '.join(message.split())}", err=True)
        return failed
    return code if isinstance(code, int) else DONE


def _told(exc: Exception) -> tuple[str, int]:
    """What to say of an error, and the exit code for it."""
    match exc:
        case ExceptionGroup():  # of a service's loops: the first that broke
            return _told(exc.exceptions[0])
        case click.UsageError():
            hint = f" (see {exc.ctx.command_path} --help)" if exc.ctx else ""
            return exc.format_message() + hint, WRONG_USE
        case click.ClickException():
            return exc.format_message(), exc.exit_code
        case StoreUnavailable():
            return str(exc), NOT_REACHABLE
        case InvalidArgument():
            return str(exc), WRONG_USE
        case RedjobError():
            return str(exc), FAILED
        case _:
            return f"unexpected {type(exc).__name__}: {exc} (REDJOB_DEBUG=1 shows where)", FAILED
