"""What a take points at besides jobs: ids that are in no place, and ready jobs that wait for room."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable

import msgspec

from redjob.calls.owner import release
from redjob.calls.sweep import requeue
from redjob.calls.work import Taken
from redjob.calls.work_reads import Stray, ready_heads, strays
from redjob.codec import decode_attempts, decode_record, is_stub
from redjob.errors import Grace, RedjobError
from redjob.ids import new_token
from redjob.keys import PartitionKeys
from redjob.worker.supervise import Background
from redjob.worker.workplace import Workplace

log = logging.getLogger("redjob.worker")

_HEADS = 128
_MOST = 500  # ids kept of a partition; the sweeper's scan finds the others
_JOB_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){4}[0-9a-f]{8}")
_TRIES = 3
_PAUSE_S = 1.0


class Strays:
    """Follows up what replies of take say; per partition one thing of a kind at a time."""

    def __init__(
        self,
        place: Workplace,
        more: Callable[[int], None],
        background: Background,
    ) -> None:
        self._store = place.store
        self._queues = place.queues
        self._more = more  # tells that a partition has work
        self._background = background
        self._releasing: set[int] = set()
        self._stale: dict[int, set[str]] = {}

    def follow(self, part: PartitionKeys, taken: Taken) -> None:
        """Look at a reply of take."""
        if taken.release and part.index not in self._releasing:
            self._releasing.add(part.index)
            self._background.start(self._release(part), "release")
        ids = [job_id for job_id in taken.stale if _JOB_ID.fullmatch(job_id)]
        if ids:
            known = self._stale.setdefault(part.index, set())
            if not known:
                self._background.start(self._requeue(part), "requeue")
            known.update(ids[: _MOST - len(known)])

    async def _release(self, part: PartitionKeys) -> None:
        """Let the first of each ready out, so that no worker is idle beside a full ready."""
        try:
            heads = await self._store.query_all(
                [ready_heads(part, queue, _HEADS) for queue in self._queues]
            )
            moved = False
            for queue, ids in zip(self._queues, heads, strict=True):
                if ids:
                    call = release(part, queue, ids, tag=new_token())
                    moved = "D" in (await self._store.call(call)).codes or moved
            if moved:
                self._more(part.index)
        except RedjobError as exc:
            log.debug("release_failed partition=%d reason=%s", part.index, exc)
        finally:
            self._releasing.discard(part.index)

    async def _requeue(self, part: PartitionKeys) -> None:
        """Give jobs that are in no place a new entry; others (cancelled, moved on) are left alone."""
        ids = sorted(self._stale.pop(part.index))
        for _ in range(_TRIES):
            try:
                await self._requeue_once(part, ids)
            except Grace as exc:
                wait_ms = exc.until_ms - self._store.now_ms()
                await asyncio.sleep(max(_PAUSE_S, wait_ms / 1000))
            except RedjobError as exc:
                log.debug("requeue_failed partition=%d reason=%s", part.index, exc)
                await asyncio.sleep(_PAUSE_S)
            else:
                return

    async def _requeue_once(self, part: PartitionKeys, ids: list[str]) -> None:
        by_queue: dict[str, list[Stray]] = {}
        for stray in await self._store.query(strays(part, ids)):
            queue = _queue_of(stray.doc)
            if queue is not None:
                by_queue.setdefault(queue, []).append(stray)
        for queue, found in by_queue.items():
            jobs = [(stray.id, "") for stray in found]
            call = requeue(part, queue, jobs, grace_ms=None, tag=new_token())
            codes = (await self._store.call(call)).codes
            for stray, code in zip(found, codes, strict=True):
                if code == "D":
                    log.warning(
                        "extra_start job=%s attempt=%d cause=entry_lost",
                        stray.id, _attempt_of(stray.attempts),
                    )  # fmt: skip


def _queue_of(doc: bytes) -> str | None:
    """The queue of a record; None when there is none, or nothing that can be read."""
    if not doc or is_stub(doc):
        return None
    try:
        return decode_record(doc).queue
    except msgspec.DecodeError:
        return None


def _attempt_of(field: bytes) -> int:
    try:
        return decode_attempts(field).attempt
    except ValueError:
        return 0
