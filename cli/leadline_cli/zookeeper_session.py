"""A session with ZooKeeper for the time of one command."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from leadline_common.zk.credentials import ZkCredentials
from leadline_common.zk.session import ZkSession

_SESSION_TIMEOUT_MS: Final = 30_000


@asynccontextmanager
async def zookeeper_session(
    hosts: str, credentials: ZkCredentials | None
) -> AsyncIterator[ZkSession]:
    """Open a session, and close it at the end of the block.

    Raises:
        ZkError: no server answers.

    """
    session = ZkSession(credentials=credentials)
    await session.start(hosts, _SESSION_TIMEOUT_MS)
    try:
        yield session
    finally:
        await session.close()
