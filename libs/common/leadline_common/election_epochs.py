"""The number in an epoch node of an election, whatever was written there. Pure but for the log."""

from __future__ import annotations

from leadline_common.unreadable import UNREADABLE
from leadline_common.zk.errors import NotPermitted
from leadline_common.zk.ops import Stat
from leadline_common.znode_json import MAX_EPOCH, NO_DATA, node_number


def decode_epoch(path: str, data: bytes, stat: Stat) -> int:
    """Decode an epoch node; the epoch is never lower than the version of the node.

    Each win adds 1 to both, and each write by others adds 1 to the version alone. So the version is
    at least the last epoch, whatever was written since, and replaces a damaged one.

    Raises:
        NotPermitted: the session may not read the node, so that not even its version is known.

    """
    if data == NO_DATA:
        raise NotPermitted(path)
    epoch = node_number(data.decode(errors="replace").strip())
    if epoch is None or epoch > MAX_EPOCH:
        UNREADABLE.add(path, f"{data[:40]!r} is no epoch")
        return stat.version
    UNREADABLE.discard(path)
    return max(epoch, stat.version)
