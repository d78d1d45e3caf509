"""What Postgres must hold after a journal: one entry, one line at a time, as plainly as can be said.

Beside it what one batch makes of the same rows: `write_batch` said in Python, for tests without a server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redjob.codec import JournalEntry
    from redjob.pg.writes import Change, NewJob, Run

_DAY_MS = 86_400_000
_RUN_KEY = ("id", "attempt", "worker", "day")
_FROM_CLIENTS = {"cancel", "purge"}
Row = dict[str, Any]


class PgModel:
    """`jobs` by id and `job_runs` by their key."""

    def __init__(self) -> None:
        self.jobs: dict[str, Row] = {}
        self.runs: dict[tuple[Any, ...], Row] = {}

    # an entry at a time

    def replay(self, partition: int, entries: Iterable[JournalEntry]) -> None:
        """Apply entries in their order."""
        for entry in entries:
            for line in entry.block.decode().split("\n") if entry.block else ():
                self._line(partition, entry, line.split(" ", 6))

    def _line(self, partition: int, entry: JournalEntry, words: list[str]) -> None:
        job_id, home, place = words[:3]
        attempt = int(words[3]) if len(words) > 3 else 0
        time = int(words[4]) if len(words) > 4 else 0
        data = words[6] if len(words) > 6 else None
        job = self.jobs.get(job_id)
        if entry.op == "enqueue" and data is not None:
            self.jobs[job_id] = self._born(partition, entry, home, time, words[5], data) | {
                "id": job_id
            }
        elif entry.op in {"take", "begin"} and job:
            job |= {"place": "T", "attempt": attempt, "worker": entry.worker}
            job |= {"started": entry.at_ms, "cancel": None, "jseq": entry.seq}
        elif entry.op == "heartbeat" and job:
            job |= {"place": "T", "attempt": attempt, "worker": entry.worker, "jseq": entry.seq}
            if data is not None:
                job |= {"past": data, "tag": entry.tag}
        elif entry.op == "cancel" and place == "T" and job:
            job |= {"cancel": entry.at_ms, "jseq": entry.seq}
        elif entry.op == "reschedule" and job:
            job |= {"run_at": time, "jseq": entry.seq}
        elif entry.op == "replay" and job:
            job |= {"place": "S", "run_at": time, "past": data, "tag": entry.tag}
            job |= {"jseq": entry.seq}
        elif entry.op in {"finish", "reclaim", *_FROM_CLIENTS}:
            self._ended(partition, entry, words)

    def _born(
        self, partition: int, entry: JournalEntry, home: str, run_at: int, queue: str, doc: str
    ) -> Row:
        record = msgspec.json.decode(doc)
        return {
            "partition": partition,
            "home": home,
            "place": "S",
            "run_at": run_at or entry.at_ms,
            "jseq": entry.seq,
            "tag": entry.tag,
            "attempt": 0,
            "past": None,
            "worker": None,
            "started": None,
            "cancel": None,
            "created": record["created"],
            "queue": queue,
            "tenant": record.get("tenant", "default"),
            "task": record["task"],
            "priority": record.get("priority", 5),
            "doc": doc,
        }

    def _ended(self, partition: int, entry: JournalEntry, words: list[str]) -> None:
        job_id, _, place, attempt = words[0], words[1], words[2], int(words[3])
        data = words[6] if len(words) > 6 else None
        job = self.jobs.get(job_id)
        known = job or {}
        final = place in "CXK" or entry.op == "purge"
        past: dict[str, Any] = msgspec.json.decode(data) if data else {}
        ran = entry.op not in _FROM_CLIENTS and known.get("attempt") == attempt
        worker = entry.worker or (ran and known.get("worker")) or ""
        self._told(
            {
                "id": job_id,
                "partition": partition,
                "jseq": entry.seq,
                "state": place if final or place == "F" else "S",
                "attempt": attempt,
                "worker": worker,
                "started": known.get("started") if ran and worker == known["worker"] else None,
                "ended": entry.at_ms,
                "outcome": _outcome(entry.op, place, past),
                "error": msgspec.json.encode(past["error"]).decode() if "error" in past else None,
                "queue": known.get("queue", ""),
                "tenant": known.get("tenant", ""),
                "task": known.get("task", ""),
                "doc": known.get("doc") if final else None,
            }
        )
        if final:
            self.jobs.pop(job_id, None)
        elif job:
            job |= {"place": "F" if place == "F" else "S", "attempt": attempt, "worker": None}
            job |= {"started": None, "cancel": None, "past": data, "tag": entry.tag}
            job |= {"jseq": entry.seq, "run_at": int(words[4]) if place == "S" else job["run_at"]}

    def _told(self, run: Row) -> None:
        """A late success takes the place of what was told of the same attempt before."""
        run["day"] = run["ended"] // _DAY_MS
        key = tuple(run[name] for name in _RUN_KEY)
        before = self.runs.get(key)
        if before is None or run["jseq"] > before["jseq"]:
            if before is not None and run["started"] is None:
                run["started"] = before["started"]
            self.runs[key] = run

    # a batch at a time

    def write(self, new: Iterable[NewJob], changes: Iterable[Change], runs: Iterable[Run]) -> None:
        """Apply the rows of one batch, whose parts see `jobs` as it was before it."""
        before = {job_id: dict(job) for job_id, job in self.jobs.items()}
        for run in runs:
            self._write_run(run, before.get(run.id))
        for job in new:
            born = job._asdict()
            assert job.home is not None
            self.jobs[job.id] = born | {"home": job.home.isoformat()}
        for change in changes:
            found = self.jobs.get(change.id)
            if found is not None and found["jseq"] < change.jseq:
                self._change(found, change)

    def _change(self, job: Row, change: Change) -> None:
        told = {name: value for name, value in change._asdict().items() if value is not None}
        del told["home"]
        if change.place != "T":
            told |= {"worker": None, "started": None, "cancel": None}
        job |= told
        for name in ("started", "cancel"):
            job[name] = job[name] or None

    def _write_run(self, run: Run, job: Row | None) -> None:
        known = job or {}
        row = run._asdict()
        del row["final"], row["home"]
        mine = known.get("attempt") == run.attempt
        if run.worker is None:
            row["worker"] = (mine and known.get("worker")) or ""
        if run.started is None and mine and row["worker"] == known.get("worker"):
            row["started"] = known.get("started")
        for name in ("queue", "tenant", "task"):
            if row[name] is None:
                row[name] = known.get(name, "")
        if run.final:
            row["doc"] = run.doc if run.doc is not None else known.get("doc")
            if job is not None and run.doc is None:
                del self.jobs[run.id]
        self._told(row)


def _outcome(op: str, place: str, past: dict[str, Any]) -> str:
    if op == "purge":
        return "purged"
    ends = {"C": "completed", "X": "expired", "K": "cancelled"}
    return ends.get(place) or past.get("last") or ("failed" if op == "finish" else "crashed")
