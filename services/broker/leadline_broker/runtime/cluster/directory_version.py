"""Tells an older copy of the log directory from the directory itself (rule R17).

A backup or a snapshot of a log directory has the directory's id, so that its replicas would count
as those members of the ISR that have acknowledged everything since. Therefore the directory has a
version, which rises with each checkpoint of the high watermarks: first in the directory, then in
ZooKeeper. A directory that is behind ZooKeeper is an older copy. It gets another id, as a new disk
has: its replicas follow the leaders, and may only be elected uncleanly.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from leadline_broker.domain.state import Directories
from leadline_broker.runtime.ports import ClusterStore, LogStore
from leadline_common.zk.errors import ZkError

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DirectoryVersion:
    """The version of a broker's log directory.

    ZooKeeper never has a version that the directory has not had durably before.
    """

    logs: LogStore
    store: ClusterStore

    async def directories(self) -> Directories:
        """Return the ids to register with; an older copy has a new one.

        Raises:
            ZkError: ZooKeeper's version could not be read.
            StorageFailed: the new id could not be written.

        """
        known = await self.store.directory_version(self.logs.directory_id)
        if self.logs.directory_version < known:
            logger.error(
                "the log directory is an older copy, and its replicas do not count as in sync: put "
                "back the directory itself, or let them follow",
                directory_id=self.logs.directory_id,
                version=self.logs.directory_version,
                latest_version=known,
            )
            await asyncio.to_thread(self.logs.renew_directory_id)
        return Directories(self.logs.directory_id, self.logs.own_directory_ids())

    async def raise_version(self) -> bool:
        """Raise the version; return whether ZooKeeper has the new one.

        Raises:
            StorageFailed: the directory could not be written; nothing has changed.

        """
        version = self.logs.directory_version + 1
        await asyncio.to_thread(self.logs.persist_directory_version, version)
        try:
            await self.store.raise_directory_version(self.logs.directory_id, version)
        except ZkError as problem:
            logger.info("version of the log directory not written", reason=str(problem))
            return False
        return True
