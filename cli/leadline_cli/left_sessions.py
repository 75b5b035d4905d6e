"""Closing the ZooKeeper sessions of services that have died, so that the cluster knows at once.

Without this, ZooKeeper would take a killed service for alive until its session times out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from leadline_common.zk.session_file import SessionNotClosed, close_left_session


class LeftSessions:
    """Closes sessions in the background; `report` gets a sentence for each one."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._closing: set[asyncio.Task[None]] = set()

    def close(self, name: str, file: Path | None) -> None:
        """Close the session that the service `name`, which has ended, left in its file."""
        if file is not None:
            task = asyncio.create_task(self._close(name, file), name=f"close session of {name}")
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def finish(self) -> None:
        """Wait for what was begun, for a few seconds at most."""
        await asyncio.gather(*self._closing)

    async def _close(self, name: str, file: Path) -> None:
        try:
            left = await close_left_session(file)
        except (SessionNotClosed, OSError) as problem:
            self._report(f"{name}: its ZooKeeper session will expire by itself ({problem})")
            return
        if left is not None:
            self._report(f"{name}: its ZooKeeper session {left.session} was closed")
