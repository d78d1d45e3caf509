"""Finds the Lua files, expands their includes and reads their headers."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from redjob.calls.call import Arg, Call

_INCLUDE = re.compile(r"^-- @include (lib/\w+)$", re.MULTILINE)
_KEY = re.compile(r"^-- KEYS\[(\d+)(\.\.)?\] (.+)$", re.MULTILINE)
_ARG = re.compile(r"^-- ARGV\[(\d+)(\.\.)?\] (.+)$", re.MULTILINE)
_REFUSES = re.compile(r"^-- Refuses: (.*(?:\n--   .*)*)", re.MULTILINE)
_WORD = re.compile(r"\b[A-Z]{4,}\b")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One declared KEYS or ARGV position, counted from 1; `rest` means "from here on"."""

    index: int
    rest: bool
    text: str


@dataclass(frozen=True, slots=True)
class Script:
    """One command: its expanded text, its SHA-1 for EVALSHA and the contract of its header."""

    name: str
    text: str
    sha: str
    keys: tuple[Parameter, ...]
    args: tuple[Parameter, ...]
    refuses: frozenset[str]


def script_names() -> list[str]:
    """Return the names of all commands, sorted."""
    folder = files("redjob") / "lua"
    return sorted(f.name[:-4] for f in folder.iterdir() if f.name.endswith(".lua"))


@lru_cache(maxsize=256)
def _source(path: str) -> str:
    return (files("redjob") / "lua" / f"{path}.lua").read_text(encoding="utf-8")


def expanded(name: str, replaced: Mapping[str, str] | None = None) -> str:
    """Return the script with its includes in place, each once, in the order they are named.

    `replaced` gives other text for an include, as tests do for `lib/now`. Raises ValueError for an
    include that is named twice, FileNotFoundError for one that does not exist.
    """
    named: list[str] = []

    def insert(match: re.Match[str]) -> str:
        path = match.group(1)
        if path in named:
            raise ValueError(f"lua/{name}.lua includes {path} twice")
        named.append(path)
        return (replaced or {}).get(path) or _source(path)

    return _INCLUDE.sub(insert, _source(name))


def _parameters(pattern: re.Pattern[str], source: str) -> tuple[Parameter, ...]:
    return tuple(Parameter(int(m[1]), bool(m[2]), m[3]) for m in pattern.finditer(source))


def load_script(name: str, replaced: Mapping[str, str] | None = None) -> Script:
    """Read one command with its header contract."""
    source = _source(name)
    text = expanded(name, replaced)
    refuses = _REFUSES.search(source)
    return Script(
        name=name,
        text=text,
        sha=hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(),
        keys=_parameters(_KEY, source),
        args=_parameters(_ARG, source),
        refuses=frozenset(_WORD.findall(refuses.group(1))) if refuses else frozenset(),
    )


class ScriptSet:
    """All commands, loaded once; `replaced` as in `expanded`."""

    def __init__(self, replaced: Mapping[str, str] | None = None) -> None:
        self._replaced = replaced
        self._scripts: dict[str, Script] = {}

    def __getitem__(self, name: str) -> Script:
        found = self._scripts.get(name)
        if found is None:
            found = self._scripts[name] = load_script(name, self._replaced)
        return found

    def command(self, call: Call[Any], *, sha: bool) -> tuple[Arg, ...]:
        """Return what runs a call: EVALSHA, or EVAL for a server that does not know the script."""
        script = self[call.script]
        name, what = ("EVALSHA", script.sha) if sha else ("EVAL", script.text)
        return (name, what, len(call.keys), *call.keys, *call.args)
