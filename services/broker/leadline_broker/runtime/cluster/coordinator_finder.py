"""Who coordinates consumer groups: what `POST /v1/consult` tells every consumer (seed 3).

ZooKeeper's word is taken as it is (rule R8): the watch is a hint, and the node is read
again every so often.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import structlog

from leadline_broker.runtime.ports import ClusterStore
from leadline_client.wire import ControllerInfo
from leadline_common.zk.errors import ZkError

logger = structlog.get_logger(__name__)

_REREAD_S: Final = 1.0


class CoordinatorFinder:
    """Follows `/consumers/coordinator`. `current` is None while there is none."""

    def __init__(self, store: ClusterStore) -> None:
        self.current: ControllerInfo | None = None
        self._store = store
        self._hinted = asyncio.Event()

    async def run(self) -> None:
        """Follow the coordinator for ever."""
        while True:
            self._hinted.clear()
            try:
                self.current = await self._store.coordinator(self._hinted.set)
            except ZkError as error:
                logger.info("coordinator not read", error=str(error) or type(error).__name__)
            with suppress(TimeoutError):
                async with asyncio.timeout(_REREAD_S):
                    await self._hinted.wait()
