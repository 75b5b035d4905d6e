"""Sessions with a user, and nodes that only a user may read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from leadline_common.zk.client import no_body
from leadline_common.zk.codec import absolute, encode_acl, encode_set_acl
from leadline_common.zk.credentials import ZkCredentials
from leadline_common.zk.requests import EncodedRequest
from leadline_common.zk.session import ZkSession
from tests.support.services.zookeeper import SESSION_TIMEOUT_MS


async def set_acl(session: ZkSession, path: str, acl: dict[str, int]) -> None:
    root = session._open_transport().root
    request = encode_set_acl(absolute(root, path), encode_acl(acl))
    await session._submit("set_acl", EncodedRequest(request), no_body, path)


@asynccontextmanager
async def logged_in(hosts: str, credentials: ZkCredentials | None) -> AsyncIterator[ZkSession]:
    session = ZkSession(credentials=credentials)
    await session.start(hosts, SESSION_TIMEOUT_MS)
    try:
        yield session
    finally:
        await session.close()
