"""The ZooKeeper server of a measurement, and what is seen in it of a failover.

Both systems have their ephemeral nodes and their state nodes in the same places.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from leadline_cli.embedded_zookeeper import ServerConfig, server_mode
from leadline_cli.processes import Child
from leadline_common.tcp_ports import LOOPBACK, free_port
from leadline_common.zk.session import ZkSession
from leadline_common.znodes import broker_id_path, state_path
from peers.systems.waiting import until

AT_ONCE: Final = 500


@asynccontextmanager
async def zookeeper(directory: Path) -> AsyncIterator[str]:
    """Run one server, with the flags that Leadline gives it; yield its address."""
    config = ServerConfig((directory / "zookeeper").resolve(), free_port())
    child = Child("zookeeper", config.command(), directory / "zookeeper.out")

    async def serves() -> bool:
        if not child.running:
            raise RuntimeError(f"ZooKeeper ended:\n{child.tail()}")
        return await asyncio.to_thread(server_mode, config.port) is not None

    child.start()
    try:
        await until(serves, "ZooKeeper serves")
        yield f"{LOOPBACK}:{config.port}"
    finally:
        await child.stop()


class FailureWatch:
    """Notes when ZooKeeper says that a broker is gone, and when it has the last new leader.

    It watches the broker's ephemeral node and the state nodes of the partitions that the broker
    leads. Nobody but the controller writes these once the broker is dead, so that the first change
    of a node is its election. Times are those of `time.monotonic`.
    """

    def __init__(self, session: ZkSession, broker: int, led: Iterable[tuple[str, int]]) -> None:
        self.gone_at = 0.0
        self._elected_at: list[float] = []
        self._session = session
        self._broker = broker
        self._paths = [state_path(*partition) for partition in led]

    async def arm(self) -> None:
        """Set all watches."""
        await self._session.exists(broker_id_path(self._broker), watch=self._gone)
        for start in range(0, len(self._paths), AT_ONCE):
            paths = self._paths[start : start + AT_ONCE]
            await asyncio.gather(*(self._session.get(path, watch=self._elected) for path in paths))

    async def is_complete(self) -> bool:
        """Tell whether the broker is gone, and every partition has a new leader."""
        return self.gone_at > 0 and len(self._elected_at) == len(self._paths)

    @property
    def last_elected_at(self) -> float:
        """When the last partition got its new leader."""
        return max(self._elected_at)

    def _elected(self) -> None:
        self._elected_at.append(time.monotonic())

    def _gone(self) -> None:
        self.gone_at = time.monotonic()
