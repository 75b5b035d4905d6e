"""The cluster's id, as ZooKeeper has it. Pure."""

from __future__ import annotations

from typing import Final

from leadline_common.zk.errors import ZkError
from leadline_common.znodes import CLUSTER_ID

MAX_LENGTH: Final = 255
RESTORING: Final = "/restoring"
"""Exists while a backup is being restored: what else exists is not complete yet."""


class UnreadableNode(ZkError):
    """A node without which a service cannot go on has no valid value; somebody has to repair it."""


class UnfinishedRestore(ZkError):
    """ZooKeeper has only a part of the backup that is being restored."""


class OlderCopy(ZkError):
    """ZooKeeper lacks what it had before: its data were replaced by those of an earlier time."""


def decode_cluster_id(data: bytes) -> str:
    """Decode the cluster's id.

    Raises:
        UnreadableNode: it is empty, too long, or no plain text.

    """
    text = data.decode(errors="replace")
    if not 0 < len(text) <= MAX_LENGTH or not text.isprintable() or "\ufffd" in text:
        raise UnreadableNode(f"{CLUSTER_ID} has no valid id: restore it, as brokers' logs name it")
    return text
