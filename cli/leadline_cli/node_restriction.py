"""Gives the nodes of a cluster's ZooKeeper the ACLs that follow from a file of users."""

from __future__ import annotations

from leadline_cli.zookeeper_session import zookeeper_session
from leadline_common.zk.credentials import ZkCredentials
from leadline_common.zk.errors import ZkError
from leadline_common.zk.restriction import Restriction, apply_acls


class Unfinished(ZkError):
    """ZooKeeper was lost meanwhile: each node has its old or its new ACL."""


async def restrict_nodes(
    zookeeper: str, credentials: ZkCredentials, *, dry_run: bool = False
) -> Restriction:
    """Apply `zk.node_acls` to all nodes below the root of a connection string.

    Raises:
        Unfinished: the connection was lost while ACLs were changed: run it again.
        ZkError: no server answers, or the connection was lost in a dry run.

    """
    async with zookeeper_session(zookeeper, credentials) as session:
        try:
            return await apply_acls(session, dry_run=dry_run)
        except ZkError as problem:
            if dry_run:
                raise
            raise Unfinished(str(problem)) from problem
