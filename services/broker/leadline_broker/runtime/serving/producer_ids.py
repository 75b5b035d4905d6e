"""Ids of idempotent producers, which a broker reserves in blocks."""

from __future__ import annotations

import asyncio
from typing import Final

from leadline_broker.runtime.ports import ClusterStore
from leadline_client.errors import StoreOutcomeUnknown
from leadline_common.zk.errors import ZkError

BLOCK: Final = 1_000
FIRST_EPOCH: Final = 0


class ProducerIds:
    """Allocates producer ids that are unique in the cluster."""

    def __init__(self, store: ClusterStore) -> None:
        self._store = store
        self._lock = asyncio.Lock()
        self._ids = iter(range(0))

    async def allocate(self) -> tuple[int, int]:
        """Return a new producer id and its first epoch.

        Raises:
            StoreOutcomeUnknown: could not reserve a block; ids may be skipped, but are never
                allocated twice.

        """
        async with self._lock:
            found = next(self._ids, None)
            if found is None:
                try:
                    first = await self._store.claim_producer_ids(BLOCK)
                except ZkError as error:
                    raise StoreOutcomeUnknown("could not reserve producer ids") from error
                self._ids = iter(range(first, first + BLOCK))
                found = next(self._ids)
        return found, FIRST_EPOCH
