"""Writes the nodes of a restored cluster into an empty ZooKeeper.

`/restoring` is the first node that is created, and is deleted in the transaction that creates the
cluster's id, without which no service does anything. So nobody mistakes a part for the whole, and
an interrupted restore can be run again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from leadline_cli.backup.archive import Node
from leadline_cli.backup.nodes import read_nodes
from leadline_cli.backup.restored_nodes import RestoredNodes
from leadline_cli.zookeeper_session import zookeeper_session
from leadline_common import consumer_znodes, znodes
from leadline_common.audit_outbox import audit_op
from leadline_common.cluster_id import RESTORING
from leadline_common.zk.batches import batches_of
from leadline_common.zk.credentials import ZkCredentials
from leadline_common.zk.errors import MultiFailed, NodeExists, NoNode, ZkError
from leadline_common.zk.ops import ANY_VERSION, CreateOp, DeleteOp, Op, SetOp
from leadline_common.zk.restriction import OF_ZOOKEEPER
from leadline_common.zk.session import ZkSession
from leadline_common.znodes import AuditEntry
from leadline_controller.adapters.outbox import ZkOutbox

_REGISTRATIONS: Final = (znodes.CONTROLLER, consumer_znodes.COORDINATOR)


class NotEmpty(ValueError):
    """ZooKeeper has nodes of a cluster, or services of one run; nothing was changed."""


class Unfinished(RuntimeError):
    """The connection was lost: something is missing, or all is there and nobody knows."""


async def write_cluster(
    zookeeper: str,
    credentials: ZkCredentials | None,
    restored: RestoredNodes,
    first_audit_id: int,
    entry: AuditEntry,
    before: Callable[[], None],
) -> None:
    """Write all nodes below the root of a connection string; the audit begins with `entry`.

    `before` is called once it is certain that nothing is in the way, and its errors end this.

    Raises:
        NotEmpty: there is something already.
        Unfinished: the connection was lost while nodes were written: run it again.
        ZkError: no server answers, or the connection was lost before.

    """
    async with zookeeper_session(zookeeper, credentials) as session:
        await session.sync()
        await _require_empty(session, restored.cluster_id)
        await asyncio.to_thread(before)
        try:
            await _submit(session, [CreateOp(RESTORING)])
            await _submit(session, (CreateOp(node.path, node.data) for node in restored.nodes))
            await _submit(session, _repeated_writes(restored.nodes))
            await ZkOutbox(session).skip_to(first_audit_id)
            await _finish(session, restored.cluster_id, entry)
        except ZkError as problem:
            raise Unfinished(f"ZooKeeper: {problem or type(problem).__name__}") from problem


async def _require_empty(session: ZkSession, cluster_id: bytes) -> None:
    """Remove what an interrupted restore has left; refuse anything else."""
    names = sorted(set(await session.get_children("/")) - {OF_ZOOKEEPER.removeprefix("/")})
    if not names:
        return
    if RESTORING.removeprefix("/") not in names:
        (found,) = await session.get_many([znodes.CLUSTER_ID])
        if found is not None and found[0] == cluster_id:
            raise NotEmpty("ZooKeeper has this cluster already: it was restored, or never lost")
        raise NotEmpty(
            f"ZooKeeper has nodes already ({', '.join(names)}): a backup is restored into an empty "
            "one. If a new cluster was started there by mistake, stop it and remove its nodes (of "
            "`leadline up`: move its directory zookeeper-1 away)"
        )
    for path in _REGISTRATIONS:
        if await session.exists(path) is not None:
            raise NotEmpty("a service is running: stop all services, and restore again")
    left = await read_nodes(session)
    await _submit(session, (DeleteOp(node.path, ANY_VERSION) for node in reversed(left)))


async def _submit(session: ZkSession, ops: Iterable[Op]) -> None:
    for batch in batches_of(ops):
        try:
            await session.multi(batch)
        except MultiFailed as failure:
            if isinstance(failure.error, NodeExists | NoNode):
                raise NotEmpty(
                    f"somebody else writes to ZooKeeper ({batch[failure.index].path}): stop all "
                    "services, and restore again"
                ) from None
            raise


def _repeated_writes(nodes: Sequence[Node]) -> Iterator[Op]:
    """Yield writes that raise the data versions of nodes: ZooKeeper counts them."""
    for node in nodes:
        for version in range(node.version):
            yield SetOp(node.path, node.data, version)


async def _finish(session: ZkSession, cluster_id: bytes, entry: AuditEntry) -> None:
    audit = audit_op(entry)
    ops = (CreateOp(znodes.CLUSTER_ID, cluster_id), audit, DeleteOp(RESTORING, ANY_VERSION))
    await _submit(session, ops)
