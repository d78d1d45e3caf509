"""Many jobs in few calls: how they are grouped, how partitions are drawn, whose reply is whose.

Pure, as `redjob.submit`.  A call carries jobs of one partition, queue, tenant and priority.  Jobs
without a key may live anywhere, so each batch of them gets a partition of its own and the next
batch the next one: few large calls, and the load spreads.  A key decides its job's partition.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from itertools import chain, count
from math import gcd
from typing import TYPE_CHECKING, NamedTuple

from redjob.calls.jobs import BATCH_BYTES, Enqueued, NewJob, enqueue
from redjob.errors import RedjobError, StoreUnavailable
from redjob.ids import new_token
from redjob.partitions import MAX_PARTITIONS, slot_range
from redjob.steps import Ahead, Reply
from redjob.submit import (
    PATIENCE_S,
    REDRAWS,
    Draft,
    Plan,
    Submitter,
    record_of,
    was_created,
    with_job,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

    from redjob.calls.call import Call
    from redjob.keys import Keyspace, PartitionKeys
    from redjob.steps import Steps


class Accepted(NamedTuple):
    """A job that Redis has; `created` is False where its key named an older one."""

    id: str
    queue: str
    created: bool


Verdict = Accepted | RedjobError
# partition (None: any), queue, tenant, priority, replicas that must have it
Kind = tuple[int | None, str, str, int, int]
JOBS_A_CALL = 250  # about 2 ms of script
_UNDER_WAY = 2
_GOLDEN = 0.382


def enqueue_all(packer: Packer, drafts: Sequence[Draft | RedjobError]) -> Steps[list[Verdict]]:
    """Enqueue drafts and answer each in its place; an error among them is its own answer.

    One call is under way while the next is put together.  After one that Redis did not answer in
    time no other is sent, as each would wait as long again: their jobs are answered as refused, and
    may be repeated.
    """
    sender = _Sender(packer, len(drafts))
    for place, draft in enumerate(drafts):
        if isinstance(draft, RedjobError):
            sender.verdicts[place] = draft
            continue
        try:
            full = packer.add(place, draft)
        except RedjobError as error:
            sender.verdicts[place] = error
        else:
            if full is not None:
                yield from sender.send(full)
    for batches in packer.rounds():
        for batch in batches:
            yield from sender.send(batch)
        yield from sender.settle(0)  # the next round holds keys of this one again
    return [verdict for verdict in sender.verdicts if verdict is not None]


class _Sender:
    """Sends batches, at most `_UNDER_WAY` at a time, and gathers the answers to their jobs."""

    def __init__(self, packer: Packer, jobs: int) -> None:
        self._packer = packer
        self.verdicts: list[Verdict | None] = [None] * jobs
        self._sent: deque[tuple[Batch, Call[Enqueued]]] = deque()
        self._silent: StoreUnavailable | None = None

    def send(self, batch: Batch) -> Steps[None]:
        """Send one batch, after the oldest has been answered if too many are under way."""
        yield from self.settle(_UNDER_WAY - 1)
        if self._silent is not None:
            batch.fail(self._silent, self.verdicts)
            return
        call = batch.call()
        self._sent.append((batch, call))
        yield Ahead(call, PATIENCE_S if batch.redraws_left else None)

    def settle(self, under_way: int) -> Steps[None]:
        """Wait for answers until no more than so many calls are under way."""
        while len(self._sent) > under_way:
            batch, call = self._sent.popleft()
            try:
                reply: Enqueued = yield Reply(hurried=self._silent is not None)
            except StoreUnavailable as error:
                other = None
                if error.outcome == "refused" and not call.repeated and batch.redraws_left:
                    other = self._packer.redrawn(batch)
                if other is not None:
                    yield from self.send(other)
                    continue
                self._silent = StoreUnavailable(error.reason, outcome="refused")
                batch.fail(error, self.verdicts)
            except RedjobError as error:
                batch.fail(error, self.verdicts)
            else:
                batch.answer(reply, call.repeated, self.verdicts)


class Batch:
    """Jobs of one call, each with its draft and its place in the caller's list."""

    __slots__ = (
        "_drafts", "_jobs", "_part", "_places", "_size", "_slots", "plan", "redraws_left", "replicas",
    )  # fmt: skip

    def __init__(
        self, part: PartitionKeys, slots: range, plan: Plan, replicas: int, redraws_left: int
    ) -> None:
        self.plan = plan
        self.replicas = replicas
        self.redraws_left = redraws_left
        self._part = part
        self._slots = slots
        self._jobs: list[NewJob] = []
        self._drafts: list[Draft] = []
        self._places: list[int] = []
        self._size = 0

    @property
    def next_slot(self) -> int:
        """A slot of the partition for the next job."""
        return self._slots[len(self._jobs) % len(self._slots)]

    def has_room(self, size: int) -> bool:
        """Whether a record of this many bytes may join; the first one always may."""
        count = len(self._jobs)
        return count == 0 or (count < JOBS_A_CALL and self._size + size <= BATCH_BYTES)

    def add(self, place: int, draft: Draft, job: NewJob) -> None:
        """Take a job."""
        self._jobs.append(job)
        self._drafts.append(draft)
        self._places.append(place)
        self._size += len(job.doc)

    def items(self) -> Iterator[tuple[int, Draft, NewJob]]:
        """Each job with its draft and its place."""
        return zip(self._places, self._drafts, self._jobs, strict=True)

    def call(self) -> Call[Enqueued]:
        """The call that enqueues all of them."""
        plan = self.plan
        call = enqueue(self._part, plan.queue, plan.tenant, plan.priority, self._jobs, new_token())
        call.replicas = self.replicas
        return call

    def answer(self, reply: Enqueued, again: bool, verdicts: list[Verdict | None]) -> None:
        """Put the script's letters, each in its job's place, into verdicts."""
        found = reply.found
        for index, code in enumerate(reply.codes):
            job = self._jobs[index]
            try:
                created = was_created(self._drafts[index], job, code, found.get(index), again=again)
            except RedjobError as error:
                verdicts[self._places[index]] = error
            else:
                verdicts[self._places[index]] = Accepted(job.id, self.plan.queue, created)

    def fail(self, error: RedjobError, verdicts: list[Verdict | None]) -> None:
        """Put the error of the whole call in the place of each job."""
        for place, job in zip(self._places, self._jobs, strict=True):
            verdicts[place] = with_job(error, job.id)


class Turns:
    """Whose turn it is among the partitions, over all calls of a client, from any thread.

    A first partition drawn anew for each list would leave the spread of many short lists to chance.
    """

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._numbers = count(rng.randrange(MAX_PARTITIONS))

    def next(self, parts: Sequence[PartitionKeys]) -> PartitionKeys:
        """The partition of the next batch."""
        return parts[next(self._numbers) * _stride(len(parts)) % len(parts)]

    def any(self, parts: Sequence[PartitionKeys]) -> PartitionKeys:
        """A partition by chance: instead of one that does not answer."""
        return self._rng.choice(parts)


class Packer:
    """Puts drafts into batches.

    The same key may stand twice in one list: the script takes an id once a call, so each repetition
    waits for the next round, and the first in the list is the first in Redis.
    """

    def __init__(
        self, keys: Keyspace, submitter: Submitter, now_ms: int, turns: Turns, *, one_server: bool
    ) -> None:
        self._keys = keys
        self._submitter = submitter
        self._now_ms = now_ms
        self._turns = turns
        self._redraws = 0 if one_server else REDRAWS
        self._rounds: list[dict[Kind, list[Batch]]] = [{}]
        self._seen: dict[str, int] = {}

    def add(self, place: int, draft: Draft) -> Batch | None:
        """Take a draft; returns a batch that is full and may be sent. Raises InvalidArgument."""
        run_at_ms, doc = record_of(draft, self._now_ms)
        if draft.key is None:
            batch, full = self._batch(draft, 0, None, len(doc))
            job_id = self._submitter.job_id(draft, batch.next_slot)
        else:
            job_id = self._submitter.job_id(draft)
            turn = self._seen.get(job_id, 0)
            self._seen[job_id] = turn + 1
            batch, full = self._batch(draft, turn, self._keys.of_job(job_id), len(doc))
        batch.add(place, draft, NewJob(job_id, run_at_ms, doc))
        return full

    def redrawn(self, batch: Batch) -> Batch:
        """The same drafts in another partition, under other ids."""
        part = self._turns.any(self._keys.parts)
        slots = slot_range(part.index, self._keys.partitions)
        other = Batch(part, slots, batch.plan, batch.replicas, batch.redraws_left - 1)
        for place, draft, job in batch.items():
            job_id = self._submitter.job_id(draft, other.next_slot)
            other.add(place, draft, NewJob(job_id, job.run_at_ms, job.doc))
        return other

    def rounds(self) -> Iterator[list[Batch]]:
        """The batches that `add` has not returned: all of one list go before those of the next."""
        for kinds in self._rounds:
            yield list(chain.from_iterable(kinds.values()))

    def _batch(
        self, draft: Draft, turn: int, part: PartitionKeys | None, size: int
    ) -> tuple[Batch, Batch | None]:
        """The batch for one more job, and the one that it was too much for, if that may be sent."""
        plan, replicas = draft.plan, self._submitter.replicas_for(draft.ack)
        while len(self._rounds) <= turn:
            self._rounds.append({})
        index = None if part is None else part.index
        kind = (index, plan.queue, plan.tenant, plan.priority, replicas)
        batches = self._rounds[turn].setdefault(kind, [])
        if batches and batches[-1].has_room(size):
            return batches[-1], None
        # Only the first round may run ahead; a later one waits until all before it are answered.
        full = batches.pop() if batches and turn == 0 else None
        redraws = self._redraws if part is None else 0
        batches.append(Batch(*self._place(part), plan, replicas, redraws))
        return batches[-1], full

    def _place(self, part: PartitionKeys | None) -> tuple[PartitionKeys, range]:
        if part is None:
            part = self._turns.next(self._keys.parts)
        return part, slot_range(part.index, self._keys.partitions)


@lru_cache(maxsize=8)
def _stride(partitions: int) -> int:
    """Return a step that visits every partition, and another server each time: they lie in ranges."""
    step = round(partitions * _GOLDEN) or 1
    while gcd(step, partitions) != 1:
        step += 1
    return step
