"""Makes a backup of a cluster, which may be running."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Sequence
from pathlib import Path

from leadline_cli.backup.archive import (
    NODES,
    Manifest,
    Member,
    UnusableBackup,
    encode_nodes,
    member_of,
    write_archive,
)
from leadline_cli.backup.nodes import read_cluster
from leadline_cli.backup.workspace import workspace
from leadline_common.cluster_id import decode_cluster_id
from leadline_common.versions import NEWEST_PROTOCOL, OLDEST_PROTOCOL, current_release
from leadline_common.zk.credentials import ZkCredentials
from leadline_common.znodes import CLUSTER_ID
from leadline_controller.adapters.history.copies import (
    UnreadableHistory,
    copy_history,
    newest_entry,
)


def make_backup(
    path: Path, zookeeper: str, credentials: ZkCredentials | None, histories: Sequence[Path]
) -> Manifest:
    """Write a backup of the nodes below a connection string, and of SQLite histories.

    Raises:
        UnusableBackup: there is no cluster below the connection string.
        UnreadableHistory: a history is missing or damaged.
        ZkError: no server answers, a node may not be read, or the connection was lost.
        OSError: the file cannot be written.

    """
    began = time.time_ns() // 1_000_000
    nodes = asyncio.run(read_cluster(zookeeper, credentials))
    named = next((node.data for node in nodes if node.path == CLUSTER_ID), None)
    if named is None:
        raise UnusableBackup(f"{zookeeper} has no {CLUSTER_ID}: no cluster was ever started there")
    body = encode_nodes(nodes)
    with workspace(path.absolute().parent) as directory:
        copies = _copy(histories, directory)
        members = [member_of(NODES, io.BytesIO(body)), *(_described(*row) for row in copies)]
        manifest = Manifest(
            decode_cluster_id(named),
            current_release(),
            OLDEST_PROTOCOL,
            NEWEST_PROTOCOL,
            began,
            len(nodes),
            tuple(members),
        )
        write_archive(path, manifest, body, [(copy.name, copy) for _, copy in copies])
    return manifest


def _copy(histories: Sequence[Path], directory: Path) -> list[tuple[Path, Path]]:
    copies = [(one, directory / f"history-{place}.db") for place, one in enumerate(histories)]
    for source, copy in copies:
        copy_history(source, copy)
        try:
            newest_entry(copy)  # A restore needs it.
        except UnreadableHistory as problem:
            raise UnreadableHistory(f"{source} is no controller's history: {problem}") from None
    return copies


def _described(source: Path, copy: Path) -> Member:
    with copy.open("rb") as content:
        return member_of(copy.name, content, str(source.absolute()))
