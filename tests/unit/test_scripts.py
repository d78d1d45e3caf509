"""Each script keeps to its header: positions, keys, arguments and refusals; and so does its call."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from redjob import keys
from redjob.calls import call as calls_call
from redjob.calls import scripts
from redjob.calls.scripts import ScriptSet, expanded, load_script, script_names
from redjob.errors import Fenced, Grace, Hold, JournalForked, NotReady, Rebuilding
from redjob.keys import Keyspace
from tests.support import luacheck
from tests.support.contract import declared_keys, refusals_in, used_indexes, words_per_job
from tests.support.samples import sample_calls

if TYPE_CHECKING:
    from redjob.calls.call import Call

_LUA = Path(__file__).resolve().parents[2] / "lua"
_PART = Keyspace("redjob", 1).parts[0]
_CALLS = sample_calls(_PART)
_NAMES = script_names()
_call = pytest.mark.parametrize(
    ("call", "queues", "ids"), _CALLS, ids=[f"{n}-{c[0].script}" for n, c in enumerate(_CALLS)]
)
_script = pytest.mark.parametrize("name", _NAMES)


def _source(name: str) -> str:
    return (_LUA / f"{name}.lua").read_text(encoding="utf-8")


def test_every_script_has_a_call_that_is_checked_here() -> None:
    assert {call.script for call, _, _ in _CALLS} == set(_NAMES)


@_script
@pytest.mark.parametrize("array", ["KEYS", "ARGV"])
def test_positions_are_declared_and_used_from_one_on_without_a_gap(name: str, array: str) -> None:
    script = load_script(name)
    declared = script.keys if array == "KEYS" else script.args
    assert [p.index for p in declared] == list(range(1, len(declared) + 1))
    assert not any(p.rest for p in declared[:-1]), "only the last may go on"
    used = used_indexes(script.text, array)
    last = declared[-1] if declared else None
    assert max(used, default=0) <= (last.index if last else 0), "used beyond the header"
    fixed = {p.index for p in declared if not p.rest}
    assert fixed <= used, "declared and not used"


@_script
def test_refusals_are_those_declared(name: str) -> None:
    assert refusals_in(_source(name)) == load_script(name).refuses


@_script
def test_header_says_what_it_returns_and_fits_a_screen(name: str) -> None:
    source = _source(name)
    assert re.match(rf"-- {name}: \S", source), "the first line says what the script does"
    assert re.search(r"^-- Returns: OK", source, re.MULTILINE)
    code = [line for line in source.splitlines() if line.strip() and not line.startswith("--")]
    assert len([line for line in code if not line.strip().startswith("--")]) <= 80


@_call
def test_call_passes_the_keys_of_the_header(
    call: Call[Any], queues: tuple[str, ...], ids: tuple[str, ...]
) -> None:
    script = load_script(call.script)
    base = _PART.base if call.part else keys.nodes_key("redjob", 0).removesuffix("nodes")
    declared = declared_keys(script)
    assert call.keys == declared.expected(base, queues=queues, ids=ids, worker="w")


@_call
def test_call_passes_as_many_arguments_as_the_header_says(
    call: Call[Any], queues: tuple[str, ...], ids: tuple[str, ...]
) -> None:
    script = load_script(call.script)
    fixed = sum(not p.rest for p in script.args)
    names = len(queues) if "names, then" in (script.args[-1].text if script.args else "") else 0
    per_job = words_per_job(script)
    if call.args[3:4] == ["fire"] or not per_job:
        assert len(call.args) == fixed
    else:
        listed = len(ids) or 2  # begin, trim and recount name entries or ids, two of them here
        assert len(call.args) == fixed + names + per_job * listed


@_call
def test_what_the_store_fills_in_stands_where_the_header_says(
    call: Call[Any], queues: tuple[str, ...], ids: tuple[str, ...]
) -> None:
    args = {p.index - 1: p.text.split()[0] for p in load_script(call.script).args}
    assert (args.get(call.run_id_at) == "run_id") is (call.run_id_at >= 0)
    assert (args.get(call.again_at) == "again") is (call.again_at >= 0)
    assert ("run_id" in args.values()) is (call.run_id_at >= 0)
    assert ("again" in args.values()) is (call.again_at >= 0)


def test_a_key_has_one_pattern_and_one_type_in_all_headers() -> None:
    seen: dict[str, set[str]] = {}
    for name in _NAMES:
        for parameter in load_script(name).keys:
            words = parameter.text.split()
            if len(words) > 2 and words[1].startswith("redjob:"):
                seen.setdefault(words[0], set()).add(" ".join(words[1:3]))
    assert {key: len(found) for key, found in seen.items() if len(found) > 1} == {}


def test_every_file_in_lib_is_included_and_needs_only_what_came_before() -> None:
    included: set[str] = set()
    for name in _NAMES:
        named = re.findall(r"^-- @include (lib/\w+)$", _source(name), re.MULTILINE)
        for position, path in enumerate(named):
            needs = re.findall(
                r"lib/\w+", (_LUA / f"{path}.lua").read_text().split("\nlocal", 1)[0]
            )
            missing = set(needs) - {path} - set(named[:position])
            assert not missing, f"{name} includes {path} before {missing}"
        included |= set(named)
    assert included == {f"lib/{file.stem}" for file in (_LUA / "lib").glob("*.lua")}


def test_luacheck_finds_nothing() -> None:
    program = shutil.which("luacheck")
    if program is None:
        pytest.skip("luacheck is not installed (Debian: lua-check)")
    assert luacheck.findings(program) == []


def test_an_include_that_is_named_twice_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def source(_: str) -> str:
        return "-- @include lib/now\n" * 2

    monkeypatch.setattr(scripts, "_source", source)
    with pytest.raises(ValueError, match="includes lib/now twice"):
        expanded("anything")


def test_an_include_that_does_not_exist_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    real = scripts._source  # pyright: ignore[reportPrivateUsage] - all other files are as they are

    def source(path: str) -> str:
        return "-- @include lib/nothing\n" if path == "command" else real(path)

    monkeypatch.setattr(scripts, "_source", source)
    with pytest.raises(FileNotFoundError):
        expanded("command")


def test_an_include_can_be_replaced_and_changes_the_sha() -> None:
    changed = ScriptSet({"lib/now": "local now_ms = 1\n"})["fire"]
    assert "local now_ms = 1" in changed.text
    assert "'TIME'" not in changed.text
    assert changed.sha != ScriptSet()["fire"].sha


@pytest.mark.parametrize(
    ("reply", "error", "field"),
    [
        ([b"NOTREADY"], NotReady, "redjob"),
        ([b"REBUILDING"], Rebuilding, calls_call.RETRY_AFTER_S),
        ([b"HOLD"], Hold, 0),
        ([b"GRACE", 5], Grace, 5),
        ([b"FENCED", b"7"], Fenced, 7),
        ([b"FORK"], JournalForked, 0),
    ],
)
def test_a_refusal_becomes_its_error(
    reply: list[Any], error: type[Exception], field: object
) -> None:
    with pytest.raises(error) as caught:
        calls_call.read_reply(_CALLS[0][0], reply, "redjob")
    assert field in vars(caught.value).values()


def test_a_reply_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(ValueError, match="script enqueue answered"):
        calls_call.read_reply(_CALLS[0][0], [b"WHAT"], "redjob")
