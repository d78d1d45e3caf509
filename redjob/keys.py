"""Every Redis key, one attribute or function each, with the type of its value.

All keys of a partition share its hash tag; nothing a user types ever forms a tag.
"""

from __future__ import annotations

from functools import lru_cache

from redjob.partitions import hash_tag, key_slot, partition_of, quorum_tag

GROUP = "workers"  # the consumer group of every `stream:<queue>`


class QueueKeys:
    """Keys of one queue in one partition."""

    __slots__ = ("bell", "dead", "due", "flow", "held", "ready", "stream")

    def __init__(self, base: str, queue: str) -> None:
        self.due = f"{base}due:{queue}"  # zset   id -> run_at ms
        self.ready = f"{base}ready:{queue}"  # zset   id -> priority and virtual start time
        self.held = f"{base}held:{queue}"  # zset   id -> until ms
        self.flow = f"{base}flow:{queue}"  # hash   depth, limit, paused, V, t:<tenant>
        self.stream = f"{base}stream:{queue}"  # stream id, doc
        self.bell = f"{base}bell:{queue}"  # list   wake-up tokens
        self.dead = f"{base}dead:{queue}"  # zset   id -> time of death ms


class PartitionKeys:
    """Keys of one partition; queue keys are made once and kept."""

    __slots__ = (
        "_queues",
        "acks",
        "attempts",
        "base",
        "cancels",
        "dispatched",
        "done",
        "finished",
        "index",
        "job_prefix",
        "journal",
        "lost",
        "meta",
        "owner",
        "progress",
        "queues",
        "result_prefix",
        "running",
        "runs",
        "slot",
        "tag",
        "waiters",
        "waiting",
    )

    def __init__(self, namespace: str, index: int, tag: str) -> None:
        base = f"{namespace}:{{{tag}}}:"
        self.index = index
        self.tag = tag
        self.slot = key_slot(tag)  # Redis' own, of all keys of the partition
        self.base = base
        self.meta = base + "meta"  # hash   state, run_id, epoch, seq, tag, ...
        self.journal = base + "journal"  # stream <seq>-0
        self.owner = base + "owner"  # hash   epoch, nonce
        self.queues = base + "queues"  # zset   queue -> earliest due ms
        self.dispatched = base + "dispatched"  # hash   id -> stream entry
        self.running = base + "running"  # zset   id -> lease_until ms
        self.runs = base + "runs"  # hash   id -> "<attempt> <worker>"
        self.attempts = base + "attempts"  # hash   id -> "<attempt> <tag> <JSON>"
        self.cancels = base + "cancels"  # hash   id -> ms
        self.progress = base + "progress"  # hash   id -> JSON
        self.finished = base + "finished"  # hash   id -> "<state> <seq> <ms> <attempt> <tag>"
        self.waiting = base + "waiting"  # hash   id -> workflow
        self.lost = base + "lost"  # zset   id -> ms
        self.acks = base + "acks"  # stream tag, verdict
        self.done = base + "done"  # stream id, state of finished jobs
        self.waiters = base + "waiters"  # string with TTL: somebody waits for results here
        self.job_prefix = base + "job:"
        self.result_prefix = base + "result:"
        self._queues: dict[str, QueueKeys] = {}

    def job(self, job_id: str) -> str:
        """string, JSON: the record, or the stub of a finished keyed job."""
        return self.job_prefix + job_id

    def result(self, job_id: str) -> str:
        """String with TTL, JSON: how the job ended and what it returned."""
        return self.result_prefix + job_id

    def taken(self, worker: str) -> str:
        """String with TTL: request id and ids of the worker's last take."""
        return f"{self.base}taken:{worker}"

    def queue(self, queue: str) -> QueueKeys:
        """The keys of one queue in this partition."""
        found = self._queues.get(queue)
        if found is None:
            found = self._queues[queue] = QueueKeys(self.base, queue)
        return found


class Keyspace:
    """All keys of a namespace that is spread over `partitions` partitions."""

    def __init__(self, namespace: str, partitions: int) -> None:
        self.namespace = namespace
        self.partitions = partitions
        self.parts = [
            PartitionKeys(namespace, index, hash_tag(index, partitions))
            for index in range(partitions)
        ]

    def of_slot(self, slot: int) -> PartitionKeys:
        """The partition that holds a slot."""
        return self.parts[partition_of(slot, self.partitions)]

    def of_job(self, job_id: str) -> PartitionKeys:
        """The partition of a job id that is known to be well formed."""
        return self.parts[int(job_id[-4:], 16) * self.partitions // 16384]


def meta_key(namespace: str) -> str:
    """hash: partitions, layout of the whole namespace."""
    return f"{namespace}:meta"


def workers_key(namespace: str) -> str:
    """zset: worker -> last seen ms, for people to look at."""
    return f"{namespace}:workers"


@lru_cache(maxsize=64)
def nodes_key(namespace: str, quorum: int) -> str:
    """hash: membership and partition leases, one of the quorum keys."""
    return f"{namespace}:{{{quorum_tag(quorum)}}}:nodes"
