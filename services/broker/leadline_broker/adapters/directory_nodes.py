"""The node with the versions of a broker's log directories (rule R17).

A directory whose own version is lower than the one in the node is an older copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from leadline_broker.adapters.required_nodes import decode_required
from leadline_common.directories import MAX_DIRECTORIES
from leadline_common.zk.client import ZkClient
from leadline_common.zk.errors import BadVersion, NodeExists, NoNode
from leadline_common.znode_json import MAX_EPOCH, check_range, decode_value
from leadline_common.znodes import BROKER_DIRECTORIES, encode_value


class DirectoryVersions(msgspec.Struct, frozen=True):
    """The value of the node: versions by directory id, the latest raised one last."""

    versions: Mapping[str, int] = {}
    extra: Mapping[str, Any] | None = None

    def raised(self, directory_id: str, version: int) -> DirectoryVersions:
        """Return the value with a directory's new version, without directories of long ago."""
        others = {one: each for one, each in self.versions.items() if one != directory_id}
        kept = list(others.items())[1 - MAX_DIRECTORIES :]
        return msgspec.structs.replace(self, versions=dict([*kept, (directory_id, version)]))


def directories_path(broker_id: int) -> str:
    """Return the node of a broker."""
    return f"{BROKER_DIRECTORIES}/{broker_id}"


async def read_version(session: ZkClient, broker_id: int, directory_id: str) -> int:
    """Return the version of a directory, 0 if none was ever written.

    Raises:
        UnreadableNode: the node has no versions; nobody knows whether the directory is a copy.
        ZkError: ZooKeeper was lost.

    """
    path = directories_path(broker_id)
    await session.sync()
    try:
        data, _ = await session.get(path)
    except NoNode:
        data = b""
    return decode_required(path, data, _decode).versions.get(directory_id, 0)


async def raise_version(session: ZkClient, broker_id: int, directory_id: str, version: int) -> None:
    """Write the version of a directory, unless a higher one was written.

    Does nothing in a cluster whose controller does not know such nodes yet.

    Raises:
        UnreadableNode: the node has no versions.
        ZkError: ZooKeeper was lost, and the outcome may be unknown.

    """
    path = directories_path(broker_id)
    while True:
        try:
            data, stat = await session.get(path)
            known = decode_required(path, data, _decode)
            if known.versions.get(directory_id, 0) < version:
                value = encode_value(known.raised(directory_id, version))
                await session.set(path, value, stat.version)
        except NoNode:
            if await session.exists(BROKER_DIRECTORIES) is None:
                return
            with suppress(NodeExists):
                await session.create(path)
        except BadVersion:
            continue
        else:
            return


def _decode(data: bytes) -> DirectoryVersions:
    """Decode the value of a node; an empty one has no versions."""
    found = decode_value(data, DirectoryVersions) if data else DirectoryVersions()
    check_range("directory version", found.versions.values(), 0, MAX_EPOCH)
    return found
