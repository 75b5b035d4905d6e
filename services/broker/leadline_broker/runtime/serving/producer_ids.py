"""Ids of idempotent producers: reserving them in blocks, and whose they are."""

from __future__ import annotations

import asyncio
from typing import Final

from leadline_broker.domain.producer_ids import belongs_to, has_owner, owned_id
from leadline_broker.runtime.ports import ClusterStore
from leadline_client.errors import BrokerFenced, ForeignProducerId, StoreOutcomeUnknown
from leadline_common.access.caller import current_caller
from leadline_common.access.principals import ANONYMOUS
from leadline_common.zk.errors import ZkError

BLOCK: Final = 1_000
FIRST_EPOCH: Final = 0


class ProducerIds:
    """Allocates producer ids that are unique in the cluster, and knows their owners."""

    def __init__(self, store: ClusterStore) -> None:
        self._store = store
        self._lock = asyncio.Lock()
        self._numbers = iter(range(0))
        self._key: bytes | None = None

    async def allocate(self) -> tuple[int, int]:
        """Return a new producer id of the sender of the request, and its first epoch.

        Raises:
            StoreOutcomeUnknown: could not reserve a block; ids may be skipped, but are never
                allocated twice.

        """
        async with self._lock:
            number = next(self._numbers, None)
            if number is None:
                try:
                    await self._read_key()
                    first = await self._store.claim_producer_ids(BLOCK)
                except ZkError as error:
                    raise StoreOutcomeUnknown("could not reserve producer ids") from error
                self._numbers = iter(range(first, first + BLOCK))
                number = next(self._numbers)
        return owned_id(number, _owner(), self._key), FIRST_EPOCH

    async def require_own(self, producer_id: int) -> None:
        """Refuse the producer id of somebody else.

        Raises:
            ForeignProducerId: it was allocated to another user.
            BrokerFenced: ZooKeeper does not answer, which has the key.

        """
        owner = _owner()
        if not owner or not has_owner(producer_id):
            return
        if self._key is None:
            try:
                await self._read_key()
            except ZkError as error:
                raise BrokerFenced("ZooKeeper does not answer: try again") from error
        # Without a key nobody can own an id: it was bound by a key that somebody has deleted.
        if self._key is None or not belongs_to(producer_id, owner, self._key):
            raise ForeignProducerId(
                f"producer id {producer_id} was not allocated to {owner}: allocate one with "
                "POST /v1/producer-ids"
            )

    async def _read_key(self) -> None:
        """Read the key, which the first controller of this release makes."""
        if self._key is None:
            self._key = await self._store.producer_id_key()


def _owner() -> str:
    """Return the sender of the request; nobody owns anything in a cluster without users."""
    principal = current_caller().principal
    return "" if principal == ANONYMOUS else str(principal)
