"""Writes `docs/vectors.json`: what every implementation of ids, partitions and hashes must compute.

Run once: `python -m tests.support.make_vectors`.  What is in the file holds for ever, as jobs are
stored under it, so an existing file is not overwritten.  To add a case, move the file away, run,
and see in the diff that lines were only added.
"""

import json
import sys
from pathlib import Path

from redjob.ids import fire_job_id, keyed_job_id, new_id, schedule_id, slot_of
from redjob.partitions import (
    QUORUM_KEYS,
    crc16,
    hash_tag,
    key_slot,
    partition_of,
    quorum_tag,
    rendezvous,
    slot_range,
)
from redjob.payload import body_hash, canonical

VECTORS = Path(__file__).parents[2] / "docs" / "vectors.json"

_ABOUT = "Times are Unix milliseconds; text is hashed as UTF-8; random_bits is a decimal string."

_TEXTS = [
    "",
    "a",
    "123456789",
    "redjob",
    "welcome:u1",
    "Grüße",
    "注文:42",
    "🚀",
    "a\0b",
    "\n",
    "x" * 255,
]
_KEYS = [
    "foo",
    "{user1000}.following",
    "foo{}{bar}",
    "foo{{bar}}zap",
    "foo{bar}{zap}",
    "{}",
    "{",
    "}{",
    "a{b",
    "redjob:{p3.1}:due:email",
    "redjob:{q0.10}:nodes",
    "ключ{тег}",
]
_PARTITION_COUNTS = [1, 3, 16, 64, 1000]
_NAMES = [
    ("redjob", "default"),
    ("redjob", "acme"),
    ("staging", "acme"),
    ("a", "b:c"),
    ("a:b", "c"),
]
_SCHEDULES = [("redjob", "billing"), ("redjob", "billing-2"), ("staging", "billing"), ("a.b", "c")]
_NOMINAL_MS = [0, 1, 1_790_000_000_000, 1_790_000_060_000, 4_102_444_800_000]
_DRAWS = [
    (0, 0, 0),
    (1_790_000_000_000, 5_798, 0x123_4567_89AB_CDEF),
    (1_790_000_000_000, 16_383, (1 << 60) - 1),
    ((1 << 48) - 1, 1, 1 << 59),
]
_BODIES = [
    ("app.send_email", "email", '{"user_id":"u1","template":"welcome"}'),
    ("app.send_email", "email", ' { "template" : "welcome",\n"user_id" : "u1" } '),
    ("app.send_email", "bulk", '{"user_id":"u1","template":"welcome"}'),
    ("app.send", "_email", "{}"),
    ("app.send_", "email", "{}"),
    ("t", "q", '{"b":[{"z":1,"a":2},[]],"a":{"d":null,"c":true}}'),
    ("t", "q", '{"z":1,"Z":2,"10":3,"9":4,"":5,"ü":6}'),
    ("t", "q", '{"😀":1,"\\uffee":2}'),
    ("t", "q", '{"s":"Gr\\u00fc\\u00dfe 🚀 \\n\\t\\"\\\\ \\u0000 \\u007f \\/ <&>"}'),
    ("t", "q", '{"n":[0,-1,9007199254740993,123456789012345678901234567890]}'),
    ("t", "q", '{"f":[1.0,-0.0,0.1,1.5e-7,1E2,1e20,1e300]}'),
]
_NODES = ["0a1b2c3d4e5f6071", "1122334455667788", "9f8e7d6c5b4a3928", "node-ü"]


Case = dict[str, object]


def build() -> dict[str, list[Case]]:
    """Return the vectors, by the name of the function, as the code computes them now."""
    return {**_partition_cases(), **_id_cases(), **_body_cases()}


def _partition_cases() -> dict[str, list[Case]]:
    tags16 = [hash_tag(index, 16) for index in range(16)]
    return {
        "crc16": [{"text": text, "crc16": crc16(text.encode())} for text in _TEXTS],
        "key_slot": [{"key": key, "slot": key_slot(key)} for key in _KEYS],
        "hash_tag": [
            {"partitions": count, "tags": [hash_tag(index, count) for index in range(count)]}
            for count in _PARTITION_COUNTS
        ],
        "quorum_tag": [{"index": index, "tag": quorum_tag(index)} for index in range(QUORUM_KEYS)],
        "slot_range": [
            {"partitions": count, "partition": index, "first": slots[0], "last": slots[-1]}
            for count in _PARTITION_COUNTS
            for index in sorted({0, count // 2, count - 1})
            for slots in [slot_range(index, count)]
        ],
        "rendezvous": [
            {"key": tag, "nodes": _NODES, "node": rendezvous(tag, _NODES)} for tag in tags16
        ],
    }


def _id_cases() -> dict[str, list[Case]]:
    schedules = [schedule_id(*names) for names in _SCHEDULES]
    job_ids = [keyed_job_id("redjob", "default", text) for text in _TEXTS]
    return {
        "new_id": [
            {
                "now_ms": now_ms,
                "slot": slot,
                "random_bits": str(bits),
                "id": new_id(now_ms, slot, bits),
            }
            for now_ms, slot, bits in _DRAWS
        ],
        "keyed_job_id": [
            {
                "namespace": namespace,
                "tenant": tenant,
                "key": key,
                "id": keyed_job_id(namespace, tenant, key),
            }
            for namespace, tenant in _NAMES
            for key in _TEXTS
        ],
        "schedule_id": [
            {"namespace": namespace, "name": name, "id": schedule_id(namespace, name)}
            for namespace, name in _SCHEDULES
        ],
        "fire_job_id": [
            {"schedule_id": schedule, "nominal_ms": at_ms, "id": fire_job_id(schedule, at_ms)}
            for schedule in schedules
            for at_ms in _NOMINAL_MS
        ],
        "slot_of": [
            {
                "id": job_id,
                "slot": slot_of(job_id),
                "partition_of_16": partition_of(slot_of(job_id), 16),
            }
            for job_id in job_ids
        ],
    }


def _body_cases() -> dict[str, list[Case]]:
    return {
        "body_hash": [
            {
                "task": task,
                "queue": queue,
                "payload": payload,
                "canonical": canonical(payload.encode()).decode(),
                "body_hash": body_hash(task, queue, payload.encode()),
            }
            for task, queue, payload in _BODIES
        ]
    }


def dump(vectors: dict[str, list[Case]]) -> str:
    """Return `vectors` as JSON with a line a case, so that a diff shows which case changed."""
    sections = [f'"about": {json.dumps(_ABOUT)}']
    for name, cases in vectors.items():
        lines = ",\n".join("  " + json.dumps(case, ensure_ascii=False) for case in cases)
        sections.append(f"{json.dumps(name)}: [\n{lines}\n]")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def main() -> int:
    """Write the file if there is none; return the exit code."""
    if VECTORS.exists():
        print(f"{VECTORS} exists and must not change; see the head of this script", file=sys.stderr)
        return 1
    VECTORS.parent.mkdir(exist_ok=True)
    VECTORS.write_text(dump(build()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
