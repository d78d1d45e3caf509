"""Scripts whose clock a test sets: `lib/now` reads a key of the test's namespace instead of TIME."""

from __future__ import annotations

from redjob.calls.scripts import ScriptSet

# The namespace comes from a key and not from Python: one text, so one script in the server's cache.
NOW = (
    "local now_ms = tonumber(redis.call('GET', "
    "string.gsub(KEYS[1], '^([^{]*)({[^}]*}).*$', '%1clock:%2') .. ''))\n"
)


def clock_key(namespace: str, tag: str) -> str:
    """string: what the scripts of `clocked_scripts` take for the time, in ms."""
    return f"{namespace}:clock:{{{tag}}}"


def clocked_scripts() -> ScriptSet:
    """All scripts, with the time from `clock_key`."""
    return ScriptSet({"lib/now": NOW})
