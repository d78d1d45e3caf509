"""Writes the examples into `lua/README.md`: one real call of each script, a record, a journal entry.

Run after a change of a script or format: `python -m tests.support.make_examples`. A test says when
the page is not up to date.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from redjob.calls.scripts import load_script, script_names
from redjob.embedded import EmbeddedServer
from tests.support.examples import Example, Teller, Told

PAGE = Path(__file__).resolve().parents[2] / "lua" / "README.md"


def with_examples(page: str, told: Told) -> str:
    """Return the page with what stands between its markers made anew.

    Raises ValueError for a marker that is not there, or a script that the story leaves out.
    """
    missing = set(script_names()) - told.calls.keys()
    if missing:
        message = f"no example of {', '.join(sorted(missing))}"
        raise ValueError(message)
    fields = dict(zip(told.entry[::2], told.entry[1::2], strict=True))
    lines = fields.pop("r").split("\n")
    entry = "  ".join(f"{name} {value or repr('')}" for name, value in fields.items())
    block = [f"{'r' if not n else ' '}  {line}" for n, line in enumerate(lines)]
    page = _replaced(page, "record", _fenced(told.record))
    page = _replaced(page, "journal", _fenced(entry, *block))
    return _replaced(page, "calls", "\n\n".join(_shown(told.calls[name]) for name in told.calls))


def _fenced(*lines: str) -> str:
    return "\n".join(("```", *lines, "```"))


def _shown(example: Example) -> str:
    base = re.match(r".*?:\{[^}]*\}:", example.keys[0])
    assert base is not None
    keys = [key.removeprefix(base[0]) for key in example.keys]
    names = [p.text.split()[0] for p in load_script(example.script).args if not p.rest]
    args = [f"{name}={value!r}" for name, value in zip(names, example.args, strict=False)]
    rest = example.args[len(names) :]
    told = " ".join([*args, *([f"+ {rest}"] if args and rest else map(repr, rest))]) or "none"
    shown = _fenced(
        f"KEYS   {base[0]} + {' '.join(keys)}", f"ARGV   {told}", f"reply  {example.reply}"
    )
    return f"### {example.script}\n\n{shown}"


def _replaced(page: str, name: str, text: str) -> str:
    pattern = re.compile(rf"(<!-- {name}[^>]*-->\n).*?(\n<!-- end -->)", re.DOTALL)
    made, count = pattern.subn(lambda found: f"{found[1]}\n{text}\n{found[2]}", page)
    if count != 1:
        message = f"the page has {count} places for {name}"
        raise ValueError(message)
    return made


def main() -> int:
    """Write the page; return the exit code."""
    with TemporaryDirectory() as folder, EmbeddedServer(folder) as server:
        told = Teller(server.url, "examples").tell()
    PAGE.write_text(with_examples(PAGE.read_text(encoding="utf-8"), told), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
