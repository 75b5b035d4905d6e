"""Reads the persistent nodes of a cluster.

The cluster may change meanwhile, and the result is no snapshot: of two nodes that one transaction
wrote, the earlier may be read before it and the later after it. A node that is deleted meanwhile is
left out with all that is below it.
"""

from __future__ import annotations

from leadline_cli.backup.archive import Node
from leadline_cli.zookeeper_session import zookeeper_session
from leadline_common.zk.credentials import ZkCredentials
from leadline_common.zk.errors import NotPermitted
from leadline_common.zk.ops import Stat
from leadline_common.zk.restriction import OF_ZOOKEEPER
from leadline_common.zk.session import ZkSession
from leadline_common.znode_json import NO_DATA


async def read_cluster(zookeeper: str, credentials: ZkCredentials | None) -> list[Node]:
    """Return the persistent nodes below the root of a connection string, parents first.

    Raises:
        NotPermitted: a node may not be read by this user.
        ZkError: no server answers, or the connection was lost.

    """
    async with zookeeper_session(zookeeper, credentials) as session:
        await session.sync()
        return await read_nodes(session)


async def read_nodes(session: ZkSession) -> list[Node]:
    """Return the persistent nodes below the root of a session, parents first; see `read_cluster`.

    Raises:
        NotPermitted: a node may not be read by this user.
        ZkError: the connection was lost.

    """
    found: list[Node] = []
    level = ["/"]
    while level:
        lists = await session.get_children_many(level)
        below = [
            f"{path.rstrip('/')}/{name}"
            for path, names in zip(level, lists, strict=True)
            for name in sorted(names or ())
        ]
        level = []
        paths = [path for path in below if path != OF_ZOOKEEPER]
        for path, read in zip(paths, await session.get_many(paths), strict=True):
            if (node := _persistent(path, read)) is not None:
                found.append(node)
                level.append(path)
    return found


def _persistent(path: str, read: tuple[bytes, Stat] | None) -> Node | None:
    """Return what to keep of a node: nothing of one that has vanished or goes with a session."""
    if read is None:
        return None
    data, stat = read
    if data == NO_DATA:
        raise NotPermitted(path)
    return None if stat.ephemeral_owner else Node(path, data, stat.version)
