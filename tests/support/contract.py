"""What the header of a script says, in a form that calls and texts can be compared with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from redjob.calls.scripts import Script

_REFUSED = re.compile(r"return \{ '([A-Z]{4,})'")
_INDEX = re.compile(r"(?<!\w)(KEYS|ARGV)\[(\d+)\]")
_FROM = re.compile(r"unpack\((KEYS|ARGV), (\d+)\)|#(KEYS|ARGV) - (\d+)")
_GROUP = re.compile(r"(?:then )?(?P<names>[a-z_]+(?: [a-z_]+)*)\s+of each (?P<what>queue|id)")
_RETURNS = re.compile(r"^-- Returns:.*?(?=^-- (?:Refuses|@include))", re.MULTILINE | re.DOTALL)
_CODES = re.compile(r"\bcodes?(?:, a letter a job)?: (?P<listed>.*)")
_PER_JOB = re.compile(r"(?:per job|names, then per job): (?P<names>[a-z_]+(?: [a-z_]+)*)")


class Key(NamedTuple):
    """One declared key: its name and its pattern, such as `redjob:{p}:due:<queue>`."""

    name: str
    pattern: str


@dataclass(frozen=True, slots=True)
class KeyList:
    """The keys of a header: fixed ones, then groups of keys per queue and per job."""

    fixed: tuple[Key, ...]
    per_queue: tuple[str, ...]
    per_job: tuple[str, ...]

    def expected(
        self, base: str, *, queues: tuple[str, ...], ids: tuple[str, ...], worker: str
    ) -> list[str]:
        """The keys that a call on these queues and jobs must pass; `base` ends in a colon."""
        words = {"<queue>": queues[0] if queues else "", "<worker>": worker}
        words["<id>"] = ids[0] if ids else ""
        found = [_fill(key.pattern, base, words) for key in self.fixed]
        found += [f"{base}{name}:{queue}" for queue in queues for name in self.per_queue]
        return found + [f"{base}{name}:{job_id}" for job_id in ids for name in self.per_job]


def declared_keys(script: Script) -> KeyList:
    """The keys as the header declares them."""
    fixed = tuple(_key(parameter.text) for parameter in script.keys if not parameter.rest)
    rest = [parameter.text for parameter in script.keys if parameter.rest]
    groups = {"queue": (), "id": ()} | {
        match["what"]: tuple(match["names"].split())
        for text in rest
        for match in _GROUP.finditer(text)
    }
    for text in rest:
        if not _GROUP.search(text):  # one pattern, repeated: `job  redjob:{p}:job:<id>  string`
            groups["id"] = (_key(text).name,)
    return KeyList(fixed, groups["queue"], groups["id"])


def words_per_job(script: Script) -> int:
    """How many arguments each job adds, by the header."""
    rest = [parameter.text for parameter in script.args if parameter.rest]
    if not rest:
        return 0
    listed = _PER_JOB.search(rest[0])
    names = listed["names"] if listed and "names, then" in rest[0] else rest[0].split("  ")[0]
    return len(names.split())


def used_indexes(text: str, array: str) -> set[int]:
    """The literal positions of KEYS or ARGV in a script, `unpack` and `#` included."""
    found = {int(match[2]) for match in _INDEX.finditer(text) if match[1] == array}
    for match in _FROM.finditer(text):
        if match[1] == array:
            found.add(int(match[2]))
        elif match[3] == array:
            found.add(int(match[4]) + 1)
    return found


def refusals_in(source: str) -> set[str]:
    """The words that a script can answer instead of OK, by its own text (includes left aside)."""
    found = set(_REFUSED.findall(source)) - {"OK"}
    gated = re.search(r"local refused = gate\((.*)\)", source)
    if gated:
        found |= {"NOTREADY", "REBUILDING"}
        if gated[1]:
            found.add("HOLD")
    return found


def declared_codes(source: str) -> set[str]:
    """The letters that a script can answer for a job, by its header."""
    told = _RETURNS.search(source)
    text = re.sub(r"\n--\s+", " ", told[0]) if told else ""
    codes = _CODES.search(re.sub(r"\([^)]*\)", "", text))
    return set(re.findall(r"(?:^|, )([A-Z=]) \w", codes["listed"])) if codes else set()


def _key(text: str) -> Key:
    name, pattern = text.split()[:2]
    return Key(name, pattern)


def _fill(pattern: str, base: str, words: dict[str, str]) -> str:
    filled = pattern.replace("redjob:{p}:", base).replace("redjob:{q}:", base)
    for word, text in words.items():
        filled = filled.replace(word, text)
    return filled
