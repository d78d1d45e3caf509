"""What queues remember of tenants for their fair share: forgotten when it matters no more; under scan."""

from __future__ import annotations

from redjob.calls import sweep
from redjob.calls.reads import queue_names
from redjob.calls.sweep_reads import FLOW_FIELDS, page_of, stream_facts
from redjob.config import SweeperConfig
from redjob.keys import PartitionKeys
from redjob.store.aio import AsyncStore
from redjob.sweeper.reading import Outages, read_each, spared
from redjob.sweeper.swept import Swept


class Tenants:
    """Keeps `flow` as small as the number of tenants that wait now, and not of all that ever did."""

    def __init__(self, store: AsyncStore, config: SweeperConfig, outages: Outages) -> None:
        self._store = store
        self._batch = config.batch
        self._outages = outages

    async def forget(self, part: PartitionKeys, swept: Swept) -> None:
        """Drop the last virtual times that the queues of a partition have reached.

        Raises StoreUnavailable.
        """
        names = await self._store.query(queue_names(part))
        facts = await read_each(
            self._store, [stream_facts(part, queue) for queue in names], self._outages
        )
        for queue, fact in zip(names, facts, strict=True):
            if fact is not None and fact.fields > FLOW_FIELDS:
                with spared(self._outages, part, queue):
                    swept.forgotten += await self._forget(part, queue, fact.virtual)

    async def _forget(self, part: PartitionKeys, queue: str, virtual: int) -> int:
        dropped, cursor = 0, ""
        while cursor != "0":
            page = await self._store.query(
                page_of(part, part.queue(queue).flow, cursor or "0", self._batch)
            )
            cursor = page.cursor
            over = [name for name, last in page.fields if _is_over(name, last, virtual)]
            for start in range(0, len(over), self._batch):
                call = sweep.forget(part, queue, over[start : start + self._batch])
                dropped += (await self._store.call(call)).dropped
        return dropped


def _is_over(name: str, last: bytes, virtual: int) -> bool:
    return name.startswith("t:") and last.isdigit() and int(last) <= virtual
