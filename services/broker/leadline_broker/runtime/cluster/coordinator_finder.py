"""The current group coordinator, as `POST /v1/consult` returns it to consumers.

Consumer Coordinator design, On Consumer Startup. The node in ZooKeeper is authoritative
(rule R8): the watch is only a hint, and the node is also read periodically.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import structlog

from leadline_broker.runtime.ports import ClusterStore
from leadline_common.rpc import ControllerRow
from leadline_common.zk.errors import ZkError

logger = structlog.get_logger(__name__)

_POLL_INTERVAL_S: Final = 1.0


class CoordinatorFinder:
    """Watches `/consumers/coordinator`; `current` is None while there is no coordinator."""

    def __init__(self, store: ClusterStore) -> None:
        self.current: ControllerRow | None = None
        self._store = store
        self._hinted = asyncio.Event()

    async def run(self) -> None:
        """Keep `current` up to date; never returns."""
        while True:
            self._hinted.clear()
            try:
                self.current = await self._store.coordinator(self._hinted.set)
            except ZkError as error:
                logger.info("coordinator not read", error=str(error) or type(error).__name__)
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_INTERVAL_S):
                    await self._hinted.wait()
