"""The settings in force: dynamic ones of this broker and of the cluster, then static ones.

The nodes in ZooKeeper are authoritative (rule R8): watches are only hints, and the nodes are
also read periodically. An invalid value affects only its own setting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final

import structlog

from leadline_broker.runtime.ports import ClusterStore
from leadline_common.settings import BrokerSettings, Level, accept_node, in_force
from leadline_common.zk.errors import ZkError

logger = structlog.get_logger(__name__)

_POLL_INTERVAL_S: Final = 10.0


async def _nothing_depends_on_it() -> None:
    """Do nothing: the broker has not started yet."""


class Configuration:
    """This broker's settings, updated while it runs. Owned by the event loop.

    Read a setting that can change from `current` at each use. `on_change()` is called after
    each change.
    """

    def __init__(self, static: BrokerSettings, store: ClusterStore) -> None:
        self.current = static
        self.on_change: Callable[[], Awaitable[None]] = _nothing_depends_on_it
        self._static = static
        self._store = store
        self._dynamic: dict[Level, Mapping[str, str]] = {"broker": {}, "cluster": {}}
        self._problems: dict[Level, Mapping[str, str]] = {}
        self._hinted = asyncio.Event()

    async def refresh(self) -> None:
        """Read the dynamic settings; if that fails, the settings stay as they are."""
        self._hinted.clear()
        try:
            broker, cluster = await self._store.configs(self._hinted.set)
        except ZkError as error:
            logger.info("settings not read", error=str(error) or type(error).__name__)
            return
        self._accept("broker", broker)
        self._accept("cluster", cluster)
        before, self.current = (
            self.current,
            in_force(self._static, self._dynamic["broker"], self._dynamic["cluster"]),
        )
        if before != self.current:
            logger.info("settings changed", **_differences(before, self.current))
            await self.on_change()

    async def run(self) -> None:
        """Keep the settings up to date; never returns."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_INTERVAL_S):
                    await self._hinted.wait()
            await self.refresh()

    def _accept(self, level: Level, node: bytes | None) -> None:
        accepted = accept_node(level, node, self._dynamic[level])
        self._dynamic[level] = accepted.values
        if accepted.problems != self._problems.get(level, {}):
            self._problems[level] = accepted.problems
            if accepted.problems:
                logger.warning("invalid settings ignored", level=level, problems=accepted.problems)


def _differences(before: BrokerSettings, after: BrokerSettings) -> dict[str, object]:
    old = before.model_dump()
    return {name: value for name, value in after.model_dump().items() if old[name] != value}
