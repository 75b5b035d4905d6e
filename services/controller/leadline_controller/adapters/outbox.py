"""The audit outbox in ZooKeeper, read by id.

ZooKeeper numbers sequence nodes by the creations under their parent, and a failed
transaction creates nothing. So ids have no gaps, the path of the next entry is known in
advance, and a reader does not need to list all children.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection
from typing import Final

import msgspec
import structlog

from leadline_common import znodes
from leadline_common.zk.errors import NoNode
from leadline_common.zk.ops import ANY_VERSION, CreateOp, DeleteOp, Stat
from leadline_common.zk.session import ZkSession
from leadline_common.znode_json import decode_json
from leadline_common.znodes import AuditEntry
from leadline_controller.domain.history import AuditRecord, ReaderPosition
from leadline_controller.domain.state import AuditedTransactions

logger = structlog.get_logger(__name__)
BATCH: Final = 32
"""Entries in one read of a search: an entry about a thousand partitions is 100 KB."""
SKIPPED_AT_ONCE: Final = 500
NEVER: Final = sys.maxsize
"""A transaction that never was: nothing is known."""
_UNREADABLE = "unreadable"
_CHANGES_COUNTED: Final = 1 << 32
_ENTRY = re.compile(r"entry-[0-9]{10}")


class ZkOutbox:
    """Implements `runtime.ports.Outbox`."""

    def __init__(self, session: ZkSession) -> None:
        self._session = session

    async def sync(self) -> None:
        """Wait until reads see everything that ZooKeeper's leader has committed."""
        await self._session.sync()

    async def extent(self) -> tuple[int, int]:
        """Return how many entries were ever created, and how many still exist."""
        _, stat = await self._session.get(znodes.AUDIT)
        return created_below(stat), stat.num_children

    async def skip_to(self, first: int) -> bool:
        """Let no later entry get an id below `first`; return whether one would have.

        ZooKeeper cannot be told a number: entries are created, and deleted again.
        """
        await self.sync()
        next_id, _ = await self.extent()
        for start in range(next_id, first, SKIPPED_AT_ONCE):
            count = min(SKIPPED_AT_ONCE, first - start)
            created = [CreateOp(znodes.AUDIT_ENTRY_PREFIX, sequence=True)] * count
            paths = await self._session.multi(created)
            await self._session.multi([DeleteOp(str(path), ANY_VERSION) for path in paths])
        return next_id < first

    async def read(self, first: int, count: int) -> list[AuditRecord]:
        """Read up to `count` consecutive entries, starting with the id `first`."""
        numbers = range(first, first + count)
        nodes = await self._session.get_many([znodes.audit_path(number) for number in numbers])
        records = []
        for number, node in zip(numbers, nodes, strict=True):
            if node is None:
                break
            data, stat = node
            records.append(AuditRecord(number, stat.czxid, _entry(number, data, stat.ctime)))
        return records

    async def audited(self, zxids: Collection[int]) -> AuditedTransactions:
        """Tell which of these transactions have an entry; read no further back than needed."""
        end, present = await self.extent()
        oldest, found, since = end - present, set[int](), min(zxids, default=0)
        known_since = NEVER
        while end > oldest and known_since > since:
            first = max(oldest, end - BATCH)
            records = await self.read(first, end - first)
            found.update(record.zxid for record in records)
            if not records:  # Somebody trims the outbox meanwhile.
                break
            end, known_since = first, records[0].zxid
        if end == 0:
            known_since = 0
        return AuditedTransactions(frozenset(found.intersection(zxids)), known_since)

    async def ids(self) -> list[int]:
        """Return the ids of the existing entries in ascending order; ignore other nodes."""
        names = await self._session.get_children(znodes.AUDIT)
        return sorted(znodes.audit_id(name) for name in names if _ENTRY.fullmatch(name))

    async def watch(self, audit_id: int, wake: Callable[[], None]) -> bool:
        """Call `wake` once when an entry is created; return whether it already exists."""
        return await self._session.exists(znodes.audit_path(audit_id), watch=wake) is not None

    async def readers(self) -> list[ReaderPosition]:
        """Return the stored positions of all controllers that have read the outbox."""
        names = await self._session.get_children(znodes.AUDIT_READERS)
        nodes = await self._session.get_many([f"{znodes.AUDIT_READERS}/{name}" for name in names])
        positions = []
        for node in nodes:
            if node is not None:
                try:
                    position: ReaderPosition = decode_json(node[0], ReaderPosition)
                    positions.append(position)
                except msgspec.MsgspecError as problem:
                    logger.error("reader position unreadable", reason=str(problem))
        return positions

    async def note(self, position: ReaderPosition) -> None:
        """Store the position of this controller."""
        path = f"{znodes.AUDIT_READERS}/{position.reader}"
        data = msgspec.json.encode(position)
        try:
            await self._session.set(path, data, ANY_VERSION)
        except NoNode:
            await self._session.create(path, data)


def created_below(stat: Stat) -> int:
    """Return how many children of a node were ever created.

    Its `cversion` counts creations and deletions, so it is twice the creations minus the existing
    children, in 32 bits with a sign: it is negative from the 2**30th creation on.
    """
    return (stat.cversion + stat.num_children) % _CHANGES_COUNTED // 2


def _entry(number: int, data: bytes, ctime: int) -> AuditEntry:
    """Decode an entry; one that cannot be decoded keeps its id and time."""
    try:
        return znodes.decode_audit(data)
    except msgspec.MsgspecError as problem:
        logger.error("audit entry unreadable", id=number, reason=str(problem))
        return AuditEntry(ctime, "", "", _UNREADABLE, outcome="unknown", reason=str(problem))
