"""The history in a database: `HistoryStore` blocks, `SqlHistory` serves an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import wraps
from itertools import groupby
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Select,
    and_,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
)
from sqlalchemy.exc import DatabaseError

from leadline_common.settings.fields import INT64_MAX
from leadline_controller.adapters.history import rows
from leadline_controller.adapters.history.database import (
    IN_MEMORY,
    file_of,
    identity_of,
    is_in_memory,
    open_database,
    reading,
    set_aside,
    shown,
    shows_damage,
    unavailable,
)
from leadline_controller.adapters.history.lookups import (
    NOTHING,
    last_before_election,
    last_expired,
    last_id,
)
from leadline_controller.adapters.history.past import past_state, state_after
from leadline_controller.adapters.history.projections import project
from leadline_controller.adapters.history.tables import (
    audit,
    fact,
    failed_broker,
    snapshot,
    state_change,
    task,
)
from leadline_controller.domain.history import (
    AuditQuery,
    AuditRecord,
    FailureRecord,
    PartitionChange,
    PastCluster,
    TaskRecord,
)

_READERS = 2
CLOSE_WITHIN_S: Final = 10.0
"""How long the end of a controller waits for the disk of its history."""
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_CLUSTER_ID = "cluster_id"
_EQUAL = {
    "actor": audit.c.actor,
    "kind": audit.c.kind,
    "cause": audit.c.cause,
    "outcome": audit.c.outcome,
    "broker": audit.c.broker,
    "group": audit.c.group_name,
    "config": audit.c.config,
}


class HistoryStore:
    """The history of one cluster in one database; its methods block the calling thread.

    Records are appended in order of their ids; records that are already stored are ignored.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def cluster_id(self) -> str | None:
        """Return the id of the cluster whose history this is, or None for a new database."""
        with self._engine.connect() as connection:
            return connection.scalar(select(fact.c.value).where(fact.c.name == _CLUSTER_ID))

    def set_cluster_id(self, cluster_id: str) -> None:
        """Store the id of the cluster whose history this is."""
        with self._engine.begin() as connection:
            connection.execute(insert(fact).values(name=_CLUSTER_ID, value=cluster_id))

    # -- writing ---------------------------------------------------------------

    def append(self, records: Sequence[AuditRecord]) -> None:
        """Store records in one transaction."""
        with self._engine.begin() as connection:
            last = last_id(connection)
            fresh = [record for record in records if record.id > last]
            if not fresh:
                return
            connection.execute(insert(audit), [rows.audit_row(record) for record in fresh])
            changes = [row for record in fresh for row in rows.change_rows(record)]
            if changes:
                connection.execute(insert(state_change), changes)
            for record in fresh:
                project(connection, record)

    def forget_before(self, time_ms: int, now_ms: int = INT64_MAX) -> int:
        """Delete entries older than `time_ms`, up to the first that is not; return how many.

        The state of the cluster after them is kept as a snapshot for rebuilding later states.
        """
        with self._engine.begin() as connection:
            newest = last_expired(connection, time_ms, now_ms)
            if newest is None:
                return 0
            past = state_after(connection, newest)
            connection.execute(delete(snapshot))
            connection.execute(
                insert(snapshot).values(
                    audit_id=past.audit_id,
                    zxid=past.zxid,
                    time=past.time,
                    cluster=msgspec.json.encode(past).decode(),
                )
            )
            connection.execute(delete(state_change).where(state_change.c.audit_id <= newest))
            gone = connection.execute(delete(audit).where(audit.c.id <= newest))
            return gone.rowcount

    # -- reading ---------------------------------------------------------------

    def ids(self) -> tuple[int, int]:
        """Return the oldest and the newest stored id; both are `NOTHING` if there are none."""
        with reading(self._engine) as connection:
            oldest = connection.scalar(select(func.min(audit.c.id)))
            return (NOTHING if oldest is None else oldest), last_id(connection)

    def last_before_election(self) -> int:
        """Return the last entry's id before the latest election that no broker wrote, or -1."""
        with self._engine.connect() as connection:
            return last_before_election(connection)

    def find(
        self, query: AuditQuery, *, cursor: int | None, newest_first: bool, limit: int
    ) -> list[AuditRecord]:
        """Return up to `limit` records that match, beyond the id `cursor` in the chosen order."""
        order = audit.c.id.desc() if newest_first else audit.c.id.asc()
        wanted = select(audit).where(*_conditions(query)).order_by(order).limit(limit)
        if cursor is not None:
            beyond = audit.c.id < cursor if newest_first else audit.c.id > cursor
            wanted = wanted.where(beyond)
        with reading(self._engine) as connection:
            return list(_records(connection, wanted))

    def partition_history(
        self, topic: str, partition: int, *, after_id: int, limit: int
    ) -> list[PartitionChange]:
        """Return the changes of a partition beyond an id, oldest first."""
        wanted = (
            select(
                state_change,
                audit.c.zxid,
                audit.c.time,
                audit.c.cause,
                audit.c.actor,
                audit.c.kind,
                audit.c.reason.label("entry_reason"),
            )
            .join(audit, audit.c.id == state_change.c.audit_id)
            .where(
                state_change.c.topic == topic,
                state_change.c.partition == partition,
                state_change.c.audit_id > after_id,
            )
            .order_by(state_change.c.audit_id)
            .limit(limit)
        )
        with self._engine.connect() as connection:
            return [rows.partition_change_of(row) for row in connection.execute(wanted).mappings()]

    def failures(self, broker: int | None, limit: int) -> list[FailureRecord]:
        """Return the failures of a broker, or of all, newest first."""
        wanted = select(failed_broker).order_by(failed_broker.c.failed_at.desc()).limit(limit)
        if broker is not None:
            wanted = wanted.where(failed_broker.c.broker == broker)
        with self._engine.connect() as connection:
            return [FailureRecord(**row) for row in connection.execute(wanted).mappings()]

    def tasks(self, limit: int) -> list[TaskRecord]:
        """Return the tasks, newest first."""
        wanted = select(task).order_by(task.c.created_at.desc(), task.c.id.desc()).limit(limit)
        with self._engine.connect() as connection:
            return [rows.task_record_of(row) for row in connection.execute(wanted).mappings()]

    def past(self, *, time_ms: int | None, zxid: int | None) -> PastCluster:
        """Rebuild the cluster at a time or after a transaction; None means now.

        All ids of the result are -1 if that is older than everything that is stored.
        """
        with reading(self._engine) as connection:
            return past_state(connection, time_ms=time_ms, zxid=zxid)


def _records(connection: Connection, wanted: Select[Any]) -> Iterator[AuditRecord]:
    """Yield the records of a page; their changes are read by one query."""
    page = connection.execute(wanted).mappings().all()
    ids = [row["id"] for row in page if row["changes"]]
    changes: dict[int, list[Any]] = {}
    if ids:
        found = (
            select(state_change)
            .where(state_change.c.audit_id.in_(ids))
            .order_by(state_change.c.audit_id, state_change.c.position)
        )
        mapped = connection.execute(found).mappings()
        changes = {key: list(group) for key, group in groupby(mapped, lambda r: r["audit_id"])}
    for row in page:
        yield rows.record_of(row, changes.get(row["id"], ()))


def _conditions(query: AuditQuery) -> Iterator[ColumnElement[bool]]:
    for member, column in _EQUAL.items():
        value = getattr(query, member)
        if value is not None:
            yield column == value
    if query.since_ms is not None:
        yield audit.c.time >= query.since_ms
    if query.until_ms is not None:
        yield audit.c.time < query.until_ms
    if query.topic is not None:
        yield _about(query.topic, query.partition)


def _about(topic: str, partition: int | None) -> ColumnElement[bool]:
    """Match entries about a topic or partition, and entries whose changes include it."""
    named = [audit.c.topic == topic]
    changed = [state_change.c.audit_id == audit.c.id, state_change.c.topic == topic]
    if partition is not None:
        named.append(audit.c.partition == partition)
        changed.append(state_change.c.partition == partition)
    return or_(and_(*named), exists().where(*changed))


_Method = Callable[Concatenate[HistoryStore, _Arguments], _Result]
_AsyncMethod = Callable[Concatenate["SqlHistory", _Arguments], Coroutine[Any, Any, _Result]]


def _in_thread(
    method: _Method[_Arguments, _Result], *, writes: bool = False
) -> _AsyncMethod[_Arguments, _Result]:
    """Return a method of `HistoryStore` as a coroutine function that does not block the loop."""

    @wraps(method)
    async def call(
        history: SqlHistory, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> _Result:
        executor = history.writer if writes else history.readers
        return await history.run(executor, lambda store: method(store, *args, **kwargs))

    return call


class SqlHistory:
    """Implements `runtime.ports.AuditHistory` with one writer thread and reader threads.

    The history is in the database of `url`; an empty `url` keeps it in memory. Call `open`
    before any other method; opening it again for the same cluster does nothing. All
    methods may raise HistoryUnavailable, if the database cannot be used for now, and the errors of
    SQLAlchemy. `is_durable` if it outlives this process.

    It is not open any more once its file turns out to be damaged or gone. What was stored is read
    again, from the outbox and other controllers, by who opens it again and asks for the `ids`.
    """

    def __init__(self, url: str) -> None:
        self._url = url or IN_MEMORY
        self._store: HistoryStore | None = None
        self._cluster_id = ""
        self._file: tuple[int, int] | None = None
        self.writer = ThreadPoolExecutor(1, thread_name_prefix="history-writer")
        # The single connection of a database in memory must not be used concurrently.
        in_memory = is_in_memory(self._url)
        self.is_durable = not in_memory
        self.readers: Executor = (
            self.writer if in_memory else ThreadPoolExecutor(_READERS, "history-reader")
        )

    async def open(self, cluster_id: str) -> None:
        """Open the database for a cluster; set the history of another cluster aside.

        Raises:
            RuntimeError: the database on a server has the history of another cluster.

        """
        if self._store is None or self._cluster_id != cluster_id:
            loop = asyncio.get_running_loop()
            try:
                await loop.run_in_executor(self.writer, self._open, cluster_id)
            except (DatabaseError, OSError) as problem:
                if (reason := unavailable(self._url, problem)) is None:
                    raise
                raise reason from problem

    def _open(self, cluster_id: str) -> None:
        if self._store is not None:
            self._store.close()
        store = HistoryStore(open_database(self._url))
        known = store.cluster_id()
        if known not in (None, cluster_id):
            store.close()
            path = file_of(self._url)
            if path is None and self.is_durable:
                raise RuntimeError(f"{shown(self._url)} has the history of cluster {known}")
            if path is not None:
                set_aside(path, "other-cluster", f"it belongs to cluster {known}, not {cluster_id}")
            store, known = HistoryStore(open_database(self._url)), None
        if known is None:
            store.set_cluster_id(cluster_id)
        self._store, self._cluster_id = store, cluster_id
        self._file = identity_of(self._url)

    async def check(self) -> None:
        """Find out whether the file is still the one that was opened.

        SQLite goes on with one that was deleted, and nothing of it outlives the process.

        Raises:
            RuntimeError: it is not, or the history is not open.

        """
        is_there = await self.run(self.writer, lambda _: identity_of(self._url) == self._file)
        if not is_there:
            await self._drop(self._store)
            raise RuntimeError("the file of the history was deleted or replaced")

    async def close(self, within_s: float = CLOSE_WITHIN_S) -> bool:
        """Finish pending work and close the database; False if its disk does not answer in time."""
        try:
            async with asyncio.timeout(within_s):
                if self._store is not None:
                    await self.run(self.writer, HistoryStore.close)
                    self._store = None
                await asyncio.to_thread(self.writer.shutdown)
                await asyncio.to_thread(self.readers.shutdown)
        except TimeoutError:
            return False
        finally:
            self.writer.shutdown(wait=False)
            self.readers.shutdown(wait=False)
        return True

    append = _in_thread(HistoryStore.append, writes=True)
    forget_before = _in_thread(HistoryStore.forget_before, writes=True)
    ids = _in_thread(HistoryStore.ids)
    last_before_election = _in_thread(HistoryStore.last_before_election)
    find = _in_thread(HistoryStore.find)
    partition_history = _in_thread(HistoryStore.partition_history)
    failures = _in_thread(HistoryStore.failures)
    tasks = _in_thread(HistoryStore.tasks)
    past = _in_thread(HistoryStore.past)

    async def run(self, executor: Executor, work: Callable[[HistoryStore], _Result]) -> _Result:
        """Call `work` with the open store in a thread."""
        store = self._store
        if store is None:
            raise RuntimeError("the history is not open")
        try:
            return await asyncio.get_running_loop().run_in_executor(executor, work, store)
        except DatabaseError as problem:
            if shows_damage(problem):
                await self._drop(store)
            if (reason := unavailable(self._url, problem)) is None:
                raise
            if self.is_durable:  # A file that was opened on a read-only disk stays read-only.
                await asyncio.get_running_loop().run_in_executor(self.writer, store.close)
            raise reason from problem

    async def _drop(self, store: HistoryStore | None) -> None:
        """Close a store that cannot be used any more, unless that was done."""
        if store is not None and self._store is store:
            self._store = None
            await asyncio.get_running_loop().run_in_executor(self.writer, store.close)
