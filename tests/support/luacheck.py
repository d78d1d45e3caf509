"""Check every Lua script as the server sees it: with its includes expanded."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from redjob.calls.scripts import expanded, script_names

_OPTIONS = (
    *("--std", "lua51"),
    *("--read-globals", "redis", "cjson", "cmsgpack", "KEYS", "ARGV"),
    *("--max-line-length", "120"),
    "--codes",
    "--no-color",
)


def main() -> int:
    """Run luacheck over the expanded scripts; without it say so and go on."""
    program = shutil.which("luacheck")
    if program is None:
        print("left out: luacheck is not installed (Debian: lua-check): the Lua was not checked")
        return 0
    with tempfile.TemporaryDirectory(prefix="redjob-lua-") as directory:
        files = [f"{name}.lua" for name in script_names()]
        for name, file in zip(script_names(), files, strict=True):
            (Path(directory) / file).write_text(expanded(name), encoding="utf-8")
        done = subprocess.run([program, *files, *_OPTIONS], cwd=directory, check=False)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
