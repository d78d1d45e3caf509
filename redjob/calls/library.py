"""The scripts as one Redis Function library: the same texts, called by name with FCALL."""

from __future__ import annotations

from redjob.calls.scripts import ScriptSet, script_names

LIBRARY = "redjob"
_READS = frozenset({"locate"})  # may run on a replica, and at maxmemory
_REFUSED_WHEN_FULL = "check_journal()"  # what a script calls that must not run at maxmemory


def function_name(script: str, library: str = LIBRARY) -> str:
    """Return the name to FCALL for a script: `redjob_take` for take."""
    return f"{library}_{script}"


def library_text(scripts: ScriptSet | None = None, library: str = LIBRARY) -> str:
    """Return the text for FUNCTION LOAD REPLACE, with a function for each script.

    KEYS, ARGV and reply are those of the script. Redis asks a function's flags before it runs where it
    asks a script at its first write: so what must go on at maxmemory carries `allow-oom`.
    """
    scripts = scripts or ScriptSet()
    parts = [f"#!lua name={library}"]
    for name in script_names():
        text = scripts[name].text
        parts.append(
            f"redis.register_function{{ function_name = '{function_name(name, library)}',"
            f" flags = {{ {_flag(name, text)} }}, callback = function(KEYS, ARGV)\n{text.rstrip()}\nend }}\n"
        )
    return "\n".join(parts)


def _flag(name: str, text: str) -> str:
    if name in _READS:
        return "'no-writes'"
    body = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    return "" if f"\n{_REFUSED_WHEN_FULL}" in body else "'allow-oom'"
