"""The ACLs of `zk.node_acls` in ZooKeeper's encoding. Pure: no IO."""

from __future__ import annotations

from collections.abc import Sequence

from leadline_common.zk import codec
from leadline_common.zk.node_acls import acl_of, pattern_of


class NodeAcls:
    """The encoded ACLs of nodes that a session with these users creates."""

    def __init__(self, users: Sequence[str]) -> None:
        self._users = tuple(users)
        self._encoded: dict[str | None, bytes] = {}

    def encoded(self, path: str) -> bytes:
        """Return the ACL of a node in ZooKeeper's encoding."""
        pattern = pattern_of(path)
        if pattern not in self._encoded:
            self._encoded[pattern] = codec.encode_acl(acl_of(path, self._users))
        return self._encoded[pattern]
