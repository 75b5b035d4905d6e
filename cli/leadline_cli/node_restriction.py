"""Gives the nodes of a cluster's ZooKeeper the ACLs that follow from a file of users."""

from __future__ import annotations

from leadline_cli.zookeeper_session import zookeeper_session
from leadline_common.zk.credentials import ZkCredentials
from leadline_common.zk.restriction import Restriction, apply_acls


async def restrict_nodes(
    zookeeper: str, credentials: ZkCredentials, *, dry_run: bool = False
) -> Restriction:
    """Apply `zk.node_acls` to all nodes below the root of a connection string.

    Raises:
        ZkError: no server answers, or the connection was lost.

    """
    async with zookeeper_session(zookeeper, credentials) as session:
        return await apply_acls(session, dry_run=dry_run)
