"""The history for an event loop: one thread writes, others read (see `runtime.ports.History`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from leadline_controller.adapters.history.database import (
    IN_MEMORY,
    file_of,
    open_database,
    set_aside,
)
from leadline_controller.adapters.history.store import HistoryStore
from leadline_controller.domain.history import (
    AuditQuery,
    AuditRecord,
    FailureRecord,
    PartitionChange,
    PastCluster,
    TaskRecord,
)

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")
_READERS = 2


class SqlHistory:
    """A cluster's history in the database of `url`; an empty `url` keeps it in memory.

    `open` it for a cluster before anything else; opening it again for the same
    cluster does nothing. Everything may raise SQLAlchemy's errors.
    """

    def __init__(self, url: str) -> None:
        self._url = url or IN_MEMORY
        self._archive: HistoryStore | None = None
        self._cluster_id = ""
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="history-writer")
        # In memory there is one connection, which threads must not use side by side.
        in_memory = self._url == IN_MEMORY
        self._readers: Executor = (
            self._writer if in_memory else ThreadPoolExecutor(_READERS, "history-reader")
        )

    async def open(self, cluster_id: str) -> None:
        """Open the database for a cluster; the history of another one is set aside.

        Raises:
            RuntimeError: a database server has the history of another cluster.

        """
        if self._archive is None or self._cluster_id != cluster_id:
            await self._run(self._writer, partial(self._open, cluster_id))

    def _open(self, cluster_id: str) -> None:
        if self._archive is not None:
            self._archive.close()
        archive = HistoryStore(open_database(self._url))
        known = archive.cluster_id()
        if known not in (None, cluster_id):
            archive.close()
            path = file_of(self._url)
            if path is None and self._url != IN_MEMORY:
                raise RuntimeError(f"{self._url} has the history of cluster {known}")
            if path is not None:
                set_aside(path, "other-cluster", f"it is of cluster {known}, not {cluster_id}")
            archive, known = HistoryStore(open_database(self._url)), None
        if known is None:
            archive.belong_to(cluster_id)
        self._archive, self._cluster_id = archive, cluster_id

    async def close(self) -> None:
        """Finish what is being written, and close the database."""
        if self._archive is not None:
            await self._run(self._writer, self._archive.close)
            self._archive = None
        self._writer.shutdown(wait=False)
        self._readers.shutdown(wait=False)

    async def append(self, records: Sequence[AuditRecord]) -> None:
        """Store records, which come in order of their ids, in one transaction."""
        await self._run(self._writer, partial(self._open_archive.append, records))

    async def forget_before(self, time_ms: int) -> int:
        """Delete entries older than a Unix time in ms; return how many."""
        return await self._run(self._writer, partial(self._open_archive.forget_before, time_ms))

    async def ids(self) -> tuple[int, int]:
        """Return the oldest and the newest stored id; both -1 when none is."""
        return await self._run(self._readers, self._open_archive.ids)

    async def find(
        self, query: AuditQuery, *, cursor: int | None, newest_first: bool, limit: int
    ) -> list[AuditRecord]:
        """Return up to `limit` records that match, beyond the id `cursor` in the order wanted."""
        find = partial(
            self._open_archive.find, query, cursor=cursor, newest_first=newest_first, limit=limit
        )
        return await self._run(self._readers, find)

    async def partition_history(
        self, topic: str, partition: int, *, after_id: int, limit: int
    ) -> list[PartitionChange]:
        """Return the changes of a partition beyond an id, oldest first."""
        read = partial(
            self._open_archive.partition_history, topic, partition, after_id=after_id, limit=limit
        )
        return await self._run(self._readers, read)

    async def failures(self, broker: int | None, limit: int) -> list[FailureRecord]:
        """Return the failures of a broker, or of all, newest first."""
        return await self._run(self._readers, partial(self._open_archive.failures, broker, limit))

    async def tasks(self, limit: int) -> list[TaskRecord]:
        """Return the tasks, newest first."""
        return await self._run(self._readers, partial(self._open_archive.tasks, limit))

    async def past(self, *, time_ms: int | None, zxid: int | None) -> PastCluster:
        """Rebuild the cluster as it was at a time or after a transaction; None means now."""
        return await self._run(
            self._readers, partial(self._open_archive.past, time_ms=time_ms, zxid=zxid)
        )

    @property
    def _open_archive(self) -> HistoryStore:
        if self._archive is None:
            raise RuntimeError("the history is not open")
        return self._archive

    async def _run(self, executor: Executor, work: Callable[[], _Answer]) -> _Answer:
        return await asyncio.get_running_loop().run_in_executor(executor, work)
