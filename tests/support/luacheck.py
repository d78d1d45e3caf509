"""Check every Lua script as the server sees it, expanded; findings name the file that people edit.

What is shared by an include is not used by every script that includes it. So an unused name inside
an include counts only when no script at all uses it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from redjob.calls.scripts import expanded, script_names

_LUA = Path(__file__).resolve().parents[2] / "lua"
_INCLUDE = re.compile(r"-- @include (lib/\w+)")
_FINDING = re.compile(r"(?P<script>\w+)\.lua:(?P<line>\d+):\d+: \((?P<code>\w+)\) (?P<text>.+)")
_UNUSED = "W2"
_OPTIONS = (
    *("--std", "lua51"),
    *("--read-globals", "redis", "cjson", "cmsgpack", "KEYS", "ARGV"),
    *("--max-line-length", "120"),
    *("--formatter", "plain"),
    "--codes",
)


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A line of a file under `lua/`."""

    file: str
    line: int

    @property
    def is_included(self) -> bool:
        """Whether scripts share this line."""
        return self.file.startswith("lib/")


def findings(program: str) -> list[str]:
    """What luacheck says about the scripts, each thing once."""
    origins = {name: _origins(name) for name in script_names()}
    told: defaultdict[tuple[Place, str, str], set[str]] = defaultdict(set)
    for match in _FINDING.finditer(_run(program, list(origins))):
        place = origins[match["script"]][int(match["line"]) - 1]
        told[place, match["code"], match["text"]].add(match["script"])
    users = {
        file: {name for name, places in origins.items() if any(p.file == file for p in places)}
        for file in {place.file for places in origins.values() for place in places}
    }
    return [
        f"lua/{place.file}:{place.line}: ({code}) {text}"
        for (place, code, text), scripts in sorted(told.items(), key=lambda item: item[0])
        if not (place.is_included and code.startswith(_UNUSED)) or scripts == users[place.file]
    ]


def _origins(name: str) -> list[Place]:
    """For each line of an expanded script the line that it comes from."""
    places: list[Place] = []
    lines: list[str] = []
    for number, line in enumerate(_lines(f"{name}.lua"), 1):
        include = _INCLUDE.fullmatch(line)
        if include is None:
            places.append(Place(f"{name}.lua", number))
            lines.append(line)
            continue
        file = f"{include[1]}.lua"
        included = _lines(file)
        places += [Place(file, n) for n in range(1, len(included) + 1)]
        lines += included
    if "\n".join(lines) != expanded(name).removesuffix("\n"):
        message = f"lua/{name}.lua is expanded in another way than this check thinks"
        raise AssertionError(message)
    return places


def _lines(file: str) -> list[str]:
    # The newline that ends an include stays before the one that ended the include line.
    text = (_LUA / file).read_text(encoding="utf-8")
    return (text if file.startswith("lib/") else text.removesuffix("\n")).split("\n")


def _run(program: str, names: list[str]) -> str:
    with tempfile.TemporaryDirectory(prefix="redjob-lua-") as directory:
        for name in names:
            (Path(directory) / f"{name}.lua").write_text(expanded(name), encoding="utf-8")
        files = [f"{name}.lua" for name in names]
        done = subprocess.run(
            [program, *files, *_OPTIONS], cwd=directory, capture_output=True, text=True, check=False
        )
    told = done.stdout + done.stderr
    if done.returncode > 2 or (done.returncode and not _FINDING.search(told)):
        raise RuntimeError(told)
    return told


def main() -> int:
    """Print the findings; without luacheck say so and go on."""
    program = shutil.which("luacheck")
    if program is None:
        print("left out: luacheck is not installed (Debian: lua-check): the Lua was not checked")
        return 0
    found = findings(program)
    print(*found, f"luacheck: {len(found)} findings in {len(script_names())} scripts", sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
