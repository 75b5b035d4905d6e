"""The audit outbox in ZooKeeper: read by id, because ids have no gaps.

A sequence node's number counts the creations under its parent, and a transaction
that fails creates nothing. So the entry after the last one known has a known path,
and nobody needs the list of all children to follow.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

import msgspec

from leadline_common import znodes
from leadline_common.zk.errors import NoNode
from leadline_common.zk.ops import ANY_VERSION
from leadline_common.zk.session import ZkSession
from leadline_common.znodes import AuditEntry
from leadline_controller.domain.history import AuditRecord, ReaderPosition

_log = logging.getLogger(__name__)
_UNREADABLE = "unreadable"
_ENTRY = re.compile(r"entry-[0-9]{10}")


class ZkOutbox:
    """See `runtime.ports.Outbox`."""

    def __init__(self, session: ZkSession) -> None:
        self._session = session

    async def extent(self) -> tuple[int, int]:
        """Return how many entries were ever written, and how many are there.

        ZooKeeper shows twice the creations less the present children as `cversion`.
        """
        _, stat = await self._session.get(znodes.AUDIT)
        return (stat.cversion + stat.num_children) // 2, stat.num_children

    async def read(self, first: int, count: int) -> list[AuditRecord]:
        """Read up to `count` entries from the id `first` on, as far as they are there."""
        numbers = range(first, first + count)
        nodes = await self._session.get_many([znodes.audit_path(number) for number in numbers])
        records = []
        for number, node in zip(numbers, nodes, strict=True):
            if node is None:
                break
            data, stat = node
            records.append(AuditRecord(number, stat.czxid, _entry(number, data, stat.ctime)))
        return records

    async def ids(self) -> list[int]:
        """Return the ids that are there, the lowest first; what else is there is no entry."""
        names = await self._session.get_children(znodes.AUDIT)
        return sorted(znodes.audit_id(name) for name in names if _ENTRY.fullmatch(name))

    async def watch(self, audit_id: int, wake: Callable[[], None]) -> bool:
        """Have `wake` told when an entry is written; True when it is there already."""
        return await self._session.exists(znodes.audit_path(audit_id), watch=wake) is not None

    async def readers(self) -> list[ReaderPosition]:
        """Return how far every controller that ever read has come."""
        names = await self._session.get_children(znodes.AUDIT_READERS)
        nodes = await self._session.get_many([f"{znodes.AUDIT_READERS}/{name}" for name in names])
        positions = []
        for node in nodes:
            if node is not None:
                try:
                    positions.append(msgspec.json.decode(node[0], type=ReaderPosition))
                except msgspec.MsgspecError as problem:
                    _log.error("a reader of the audit cannot be read: %s", problem)
        return positions

    async def note(self, position: ReaderPosition) -> None:
        """Publish how far this controller has come."""
        path = f"{znodes.AUDIT_READERS}/{position.reader}"
        data = msgspec.json.encode(position)
        try:
            await self._session.set(path, data, ANY_VERSION)
        except NoNode:
            await self._session.create(path, data)


def _entry(number: int, data: bytes, ctime: int) -> AuditEntry:
    """Decode an entry; one that somebody wrote by hand keeps its place at least."""
    try:
        return znodes.decode_audit(data)
    except msgspec.MsgspecError as problem:
        _log.error("audit entry %d cannot be read: %s", number, problem)
        return AuditEntry(ctime, "", "", _UNREADABLE, outcome="unknown", reason=str(problem))
