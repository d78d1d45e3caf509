"""redjob.bench.servers: which server a benchmark of memory gets."""

from __future__ import annotations

import sys

import pytest

from redjob.bench.servers import Choice, choose

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="preloading is for Linux")


def has(monkeypatch: pytest.MonkeyPatch, *, library: str | None, redis: str | None) -> None:
    def find_library(_name: str) -> str | None:
        return library

    def which(_name: str) -> str | None:
        return redis

    monkeypatch.setattr("ctypes.util.find_library", find_library)
    monkeypatch.setattr("shutil.which", which)


def test_a_kind_that_was_asked_for_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, library="libjemalloc.so.2", redis="/usr/bin/redis-server")
    assert choose("redis", wants_jemalloc=True) == Choice("redis")
    assert choose("valkey", wants_jemalloc=True) == Choice("valkey")
    assert choose(None, wants_jemalloc=False) == Choice(None)


def test_memory_is_measured_with_jemalloc_where_the_machine_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    has(monkeypatch, library="libjemalloc.so.2", redis="/usr/bin/redis-server")
    assert choose(None, wants_jemalloc=True) == Choice("valkey", "libjemalloc.so.2")
    has(monkeypatch, library=None, redis="/usr/bin/redis-server")
    assert choose(None, wants_jemalloc=True) == Choice("redis")


def test_another_allocator_is_said_in_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, library=None, redis=None)
    choice = choose(None, wants_jemalloc=True)
    assert choice.kind is None
    assert "another allocator" in (choice.note or "")
