"""Gives the nodes of a cluster's ZooKeeper the ACLs that follow from a file of users."""

from __future__ import annotations

from typing import Final

from leadline_common.zk.credentials import ZkCredentials
from leadline_common.zk.restriction import Restriction, apply_acls
from leadline_common.zk.session import ZkSession

_SESSION_TIMEOUT_MS: Final = 30_000


async def restrict_nodes(
    zookeeper: str, credentials: ZkCredentials, *, dry_run: bool = False
) -> Restriction:
    """Apply `zk.node_acls` to all nodes below the root of a connection string.

    Raises:
        ZkError: no server answers, or the connection was lost.

    """
    session = ZkSession(credentials=credentials)
    await session.start(zookeeper, _SESSION_TIMEOUT_MS)
    try:
        return await apply_acls(session, dry_run=dry_run)
    finally:
        await session.close()
