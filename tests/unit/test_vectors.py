"""`docs/vectors.json` holds for ever: the code must compute what jobs are stored under."""

import json
from hashlib import sha256
from uuid import RFC_4122, UUID

import pytest

from redjob import ids, partitions
from tests.support import make_vectors


@pytest.fixture(scope="module")
def text() -> str:
    return make_vectors.VECTORS.read_text(encoding="utf-8")


def test_the_code_still_computes_every_vector_and_the_script_writes_this_very_file(
    text: str,
) -> None:
    assert make_vectors.dump(make_vectors.build()) == text


def test_no_vector_is_written_twice(text: str) -> None:
    lines = [line.rstrip(",") for line in text.splitlines() if line.startswith("  ")]
    assert len(lines) == len(set(lines))


def test_the_script_does_not_overwrite_the_vectors(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert make_vectors.main() == 1
    assert "must not change" in capsys.readouterr().err
    assert make_vectors.VECTORS.read_text(encoding="utf-8") == text


def test_keyed_ids_follow_from_their_written_rule(text: str) -> None:
    for case in json.loads(text)["keyed_job_id"]:
        parts = ("redjob:key", case["namespace"], case["tenant"], case["key"])
        assert case["id"] == uuid_by_the_rule("\0".join(parts))


def test_schedule_ids_follow_from_their_written_rule(text: str) -> None:
    for case in json.loads(text)["schedule_id"]:
        parts = ("redjob:schedule", case["namespace"], case["name"])
        assert case["id"] == uuid_by_the_rule("\0".join(parts))


def test_fire_ids_follow_from_their_written_rule_and_have_the_slot_of_the_schedule(
    text: str,
) -> None:
    for case in json.loads(text)["fire_job_id"]:
        parts = ("redjob:fire", case["schedule_id"], str(case["nominal_ms"]))
        assert case["id"] == uuid_by_the_rule("\0".join(parts), case["schedule_id"][-4:])


def test_body_hashes_follow_from_their_written_rule(text: str) -> None:
    cases = json.loads(text)["body_hash"]
    for case in cases:
        parts = (case["task"], case["queue"], case["canonical"])
        assert case["body_hash"] == sha256("\0".join(parts).encode()).hexdigest()[:32]
        assert json.loads(case["canonical"]) == json.loads(case["payload"])
        assert all(keys == sorted(keys) for keys in keys_of_objects(case["canonical"]))
    assert len({case["body_hash"] for case in cases}) == len(cases) - 1, "two payloads are equal"


def test_every_id_is_a_valid_uuid_in_its_slot_and_no_two_are_equal(text: str) -> None:
    vectors = json.loads(text)
    names = {"new_id": 7, "keyed_job_id": 8, "schedule_id": 8, "fire_job_id": 8}
    found = [(case["id"], version) for name, version in names.items() for case in vectors[name]]
    assert len({job_id for job_id, _ in found}) == len(found)
    for job_id, version in found:
        assert str(UUID(job_id)) == job_id
        assert (UUID(job_id).variant, UUID(job_id).version) == (RFC_4122, version)
        assert 0 <= ids.slot_of(job_id) < partitions.SLOTS


def uuid_by_the_rule(source: str, slot: str | None = None) -> str:
    """Compute a derived id the slow way: by the words of the docstring and the standard library."""
    digest = sha256(source.encode()).digest()
    slot = slot or f"{(digest[16] * 256 + digest[17]) % 16384:04x}"
    digits = digest[:16].hex()
    variant = "89ab"[int(digits[16], 16) % 4]
    return str(UUID(f"{digits[:12]}8{digits[13:16]}{variant}{digits[17:28]}{slot}"))


def keys_of_objects(text: str) -> list[list[str]]:
    """Return the keys of every object in a JSON text, as they stand there."""
    found: list[list[str]] = []
    json.loads(text, object_pairs_hook=lambda pairs: found.append([key for key, _ in pairs]))
    return found
