"""The scripts in the form of a function library, for tests that run over both forms."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from redis import Redis

from redjob.calls.library import function_name, library_text
from redjob.calls.scripts import ScriptSet
from tests.support.clock import clocked_scripts

if TYPE_CHECKING:
    from redjob.calls.call import Arg, Call

Form = Literal["scripts", "functions"]
FORMS: tuple[Form, ...] = ("scripts", "functions")
CLOCKED = "clocked"  # library whose functions take the time from the test, as clocked_scripts do


class FunctionSet(ScriptSet):
    """Runs calls by FCALL of a library that was loaded."""

    def __init__(self, library: str) -> None:
        super().__init__()
        self._library = library

    def command(self, call: Call[Any], *, sha: bool) -> tuple[Arg, ...]:  # noqa: ARG002 - one form
        """What runs a call."""
        name = function_name(call.script, self._library)
        return ("FCALL", name, len(call.keys), *call.keys, *call.args)


@lru_cache(maxsize=16)
def _loaded(url: str) -> FunctionSet:
    with Redis.from_url(url) as redis:
        redis.execute_command(
            "FUNCTION", "LOAD", "REPLACE", library_text(clocked_scripts(), CLOCKED)
        )
    return FunctionSet(CLOCKED)


def scripts_of(form: Form, url: str) -> ScriptSet:
    """The scripts with a clock that tests set, in one form; functions are loaded once a server."""
    return clocked_scripts() if form == "scripts" else _loaded(url)
