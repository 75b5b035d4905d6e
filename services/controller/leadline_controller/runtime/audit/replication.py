"""Replication of the audit outbox into every controller's own database.

Active or standby, each controller reads every audit entry and stores it in its own
database, so the history outlives any controller and any disk. Entries are deleted from
the outbox only when they are stored (`retention.py`). A controller that was down for
long, or begins with an empty database, copies older entries from another controller.

Replication does not delay decisions: it runs beside the event queue, and stores nothing
while brokers wait for new roles. A standby, which does not know what they wait for, rests for a
while before it stores the first new entries, unless somebody waits for them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass, field
from typing import TypeAlias

import structlog

from leadline_client.errors import LeadlineError
from leadline_common.clock import Clock
from leadline_common.cluster_id import OlderCopy
from leadline_common.identity import ServiceAddress, ServiceIdentity
from leadline_common.log_rate import LogRate
from leadline_common.settings import ControllerSettings
from leadline_common.tracing import spans
from leadline_common.zk.errors import ZkError
from leadline_common.znodes import AuditEntry
from leadline_controller.domain.history import (
    CLUSTER_RESTORED,
    HISTORY_GAP,
    AuditQuery,
    AuditRecord,
    ReaderPosition,
)
from leadline_controller.runtime.engine.metrics import ControllerMetrics
from leadline_controller.runtime.ports import AuditHistory, Outbox, PeerAuditClient

logger = structlog.get_logger(__name__)

WaitSettled: TypeAlias = Callable[[], Awaitable[None]]
"""Waits until every live broker has acknowledged its roles."""

BATCH = 32
"""Entries in one read: an entry about a thousand partitions is 100 KB."""
POLL_S = 2.0
"""How often to look for entries even if no watch fires (rule R8)."""
PUBLISH_INTERVAL_S = 1.0
"""The shortest time between two publications of the position."""
MAX_SETTLE_S = 5.0
"""The longest time that storing waits for a failover."""
STANDBY_REST_S = 3.0
RETRY_S = 1.0
PEER_TIMEOUT_S = 60.0
"""How long to retry a controller that has missing entries but does not answer."""
RESTORED_TIMEOUT_S = 10.0
"""How long to look for entries from before `leadline cluster restore`.

All controllers start at once then, in a ZooKeeper that knows none of them.
"""
RETENTION_INTERVAL_S = 600.0
OPEN_WITHIN_S = 5.0
"""How long a disk may take to open the history before this controller takes part without it."""
MOST_RESTORES = 1_000
_RESTORES = AuditQuery(kind=CLUSTER_RESTORED)


class _NotStored(Exception):
    """Entries were not stored: this controller's own history failed, not that of another one."""


@dataclass(eq=False)
class AuditReplicator:
    """Keeps the history of one controller process, through any number of sessions.

    `history` is this controller's own, `peers` the client for the others'. `stored` and
    `oldest` are the newest and the oldest id in the database, -1 if it is empty. `problem` is why
    the history is not kept at the moment, empty if it is.
    """

    settings: ControllerSettings
    url: str
    history: AuditHistory
    peers: PeerAuditClient
    clock: Clock
    metrics: ControllerMetrics
    internal_url: str = ""
    stored: int = field(default=-1, init=False)
    oldest: int = field(default=-1, init=False)
    problem: str = field(default="", init=False)
    _failures: LogRate = field(default_factory=LogRate, init=False)
    _outbox: Outbox | None = field(default=None, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _progress: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _published: ReaderPosition | None = field(default=None, init=False)
    _published_ms: int = field(default=0, init=False)
    _cleaned_ms: int = field(default=0, init=False)
    _missing_since_ms: int | None = field(default=None, init=False)
    _asking: int = field(default=0, init=False)
    _asked: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _rested: bool = field(default=True, init=False)

    @property
    def published(self) -> int:
        """The newest stored id that was published in ZooKeeper; -1 before the first."""
        return -1 if self._published is None else self._published.stored

    async def follow(self, outbox: Outbox, cluster_id: str, settled: WaitSettled) -> None:
        """Store entries as they are written, until cancelled; await `settled` before storing.

        Failures are logged and retried: the history must never end a term.
        """
        self._outbox = outbox
        try:
            while True:
                try:
                    await self.history.open(cluster_id)
                    self.oldest, self.stored = await self.history.ids()
                    await self._number_after_history(outbox)
                    self._wake_waiters()
                    while True:
                        await self._step(outbox, settled)
                        self._works()
                except ZkError as error:
                    logger.info("audit replication waits for ZooKeeper", error=str(error))
                except (LeadlineError, _NotStored) as error:
                    self._failed("audit replication waits for its history", str(error))
                except Exception as error:
                    self._failed("audit replication failed", repr(error), error)
                await asyncio.sleep(RETRY_S)
        finally:
            self._outbox = None

    def _works(self) -> None:
        if self.problem:
            logger.info("audit replication works again", stored=self.stored)
            self.problem = ""

    def _failed(self, event: str, reason: str, defect: Exception | None = None) -> None:
        """Remember a failure, and log it unless such a one was logged in the last seconds."""
        self.problem = reason
        more_before = self._failures.admit(event, self.clock.monotonic_ms())
        if more_before is not None:
            logger.error(event, reason=reason, more_before=more_before, exc_info=defect)

    async def require_no_older_copy(self, outbox: Outbox, cluster_id: str) -> None:
        """Refuse a ZooKeeper that lacks entries of which this history has later ones.

        Each change of a partition is in one transaction with its entry. So such a ZooKeeper lacks
        changes: an ISR in it may have a replica without acknowledged records, and topics that are
        not in it would count as deleted. A history that cannot be read in time proves nothing.

        Raises:
            OlderCopy: it is an older copy, and not what `leadline cluster restore` has written
                since.
            ZkError: ZooKeeper was lost.

        """
        await outbox.sync()
        next_id, _ = await outbox.extent()
        try:
            async with asyncio.timeout(OPEN_WITHIN_S):
                await self.history.open(cluster_id)
                _, stored = await self.history.ids()
                if stored < next_id:
                    return
                earlier = await self.history.find(
                    _RESTORES, cursor=None, newest_first=True, limit=MOST_RESTORES
                )
        except Exception as problem:  # Any database may be behind it; `follow` logs it, too.
            logger.warning("history not compared with ZooKeeper", reason=repr(problem))
            return
        if not await _is_restored(outbox, {(one.id, one.entry.time) for one in earlier}):
            raise OlderCopy(
                f"ZooKeeper is an older copy: its next audit id is {next_id}, but the history has "
                f"{stored}. Stop all services, and restore a backup (`leadline cluster restore`)"
            )

    async def _number_after_history(self, outbox: Outbox) -> None:
        """Skip the ids that the history has already: another ZooKeeper would use them again.

        `leadline cluster restore` does so for the histories that it is given.
        """
        if await outbox.skip_to(self.stored + 1):
            logger.error("audit ids skipped: ZooKeeper is older than the history", to=self.stored)

    async def catch_up(self, within_s: float) -> bool:
        """Wait until all present outbox entries are stored; return False on a timeout."""
        self._asking += 1
        self._asked.set()
        try:
            async with asyncio.timeout(within_s):
                while (outbox := self._outbox) is None:
                    await self._progress.wait()
                next_id, _ = await outbox.extent()
                while self.stored < next_id - 1:
                    self._wake.set()
                    await self._progress.wait()
        except (TimeoutError, ZkError):
            return False
        finally:
            self._asking -= 1
            if not self._asking:
                self._asked.clear()
        return True

    async def rest(self) -> None:
        """Wait before new entries are stored, unless somebody waits for them."""
        if self._rested:
            return
        self._rested = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STANDBY_REST_S):
                await self._asked.wait()

    # -- steps -----------------------------------------------------------------

    async def _step(self, outbox: Outbox, settled: WaitSettled) -> None:
        """Store the next entries, or wait for them."""
        records = await outbox.read(self.stored + 1, BATCH)
        if records:
            await self._wait_settled(settled)
            await self._store(records)
        elif not await self._fill_gap(outbox):
            await self._publish_position(outbox)
            await self._delete_expired()
            await self.history.check()
            await self._await_entry(outbox)
        await self._publish_position(outbox, interval_s=PUBLISH_INTERVAL_S)

    async def _wait_settled(self, settled: WaitSettled) -> None:
        """Let brokers acknowledge new roles first, for a limited time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MAX_SETTLE_S):
                await settled()

    async def _store(self, records: list[AuditRecord]) -> None:
        with _storing(records):
            try:
                await self.history.append(records)
            except LeadlineError as problem:
                raise _NotStored(problem.message) from problem
        self.stored = records[-1].id
        if self.oldest < 0:
            self.oldest = records[0].id
        self.metrics.audit_stored.inc(len(records))
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        self._progress.set()
        self._progress = asyncio.Event()

    async def _await_entry(self, outbox: Outbox) -> None:
        """Wait until the next entry may be present."""
        self._wake.clear()
        self._rested = False
        if await outbox.watch(self.stored + 1, self._wake.set):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(POLL_S):
                await self._wake.wait()

    async def _fill_gap(self, outbox: Outbox) -> bool:
        """Copy entries missing from the outbox from another controller; False if none are.

        They were trimmed, or an operator has deleted some.
        """
        next_id, _ = await outbox.extent()
        if self.stored + 1 >= next_id:
            return False
        end = next((number for number in await outbox.ids() if number > self.stored), next_id)
        if end <= self.stored + 1:
            return False
        following = await outbox.read(end, 1)
        is_restored = bool(following) and following[0].entry.kind == CLUSTER_RESTORED
        first = await self._copy_from_peers(outbox, end, is_restored=is_restored)
        if first is None:
            await asyncio.sleep(RETRY_S)
        elif first > self.stored + 1:
            await self._record_gap(self.stored + 1, first)
        return True

    async def _copy_from_peers(
        self, outbox: Outbox, until: int, *, is_restored: bool
    ) -> int | None:
        """Copy the entries before `until` from other controllers.

        Returns the first id after the missing ones that some controller has; None if others
        should be asked again: one that has missing entries did not answer, or `is_restored`
        (they are from before a restore) and not all controllers may be known yet.
        """
        first, limit_s = until, RESTORED_TIMEOUT_S if is_restored else 0.0
        readers = sorted(await outbox.readers(), key=lambda reader: (reader.oldest, -reader.stored))
        for reader in readers:
            is_other = reader.reader != self.settings.controller_id
            if is_other and self.stored < min(reader.stored, until - 1):
                try:
                    first = min(first, await self._copy(_address(reader), until))
                except LeadlineError as problem:
                    limit_s = PEER_TIMEOUT_S
                    logger.warning(
                        "peer history not available", controller=reader.reader, error=str(problem)
                    )
        if self.stored < until - 1 and self._asks_again(limit_s):
            return None
        self._missing_since_ms = None
        return max(first, self.stored + 1)

    def _asks_again(self, limit_s: float) -> bool:
        """Return whether to ask others again: entries have been missing for less than a time."""
        now_ms = self.clock.monotonic_ms()
        if self._missing_since_ms is None:
            self._missing_since_ms = now_ms
            logger.info("audit entries are missing", after=self.stored, waits_s=limit_s)
        return now_ms - self._missing_since_ms < 1000 * limit_s

    async def _copy(self, peer: ServiceAddress, until: int) -> int:
        """Store a controller's entries before `until`; return the first id after a gap in them."""
        async for records in self.peers.export(peer, self.stored + 1):
            first = records[0]
            if first.id > self.stored + 1 and first.entry.kind != HISTORY_GAP:
                return first.id  # It has deleted older entries; other controllers may have them.
            await self._store(records)
            if self.stored >= until - 1:
                break
        return until

    async def _record_gap(self, first: int, end: int) -> None:
        """Record in the history that a part of it is missing."""
        reason = f"entries {first} to {end - 1} had left the outbox, and nobody else has them"
        logger.error("audit history has a gap", reason=reason)
        me = f"controller-{self.settings.controller_id}"
        entry = AuditEntry(self.clock.wall_ms(), "", me, HISTORY_GAP, "unknown", reason)
        await self._store([AuditRecord(end - 1, 0, entry)])

    async def _publish_position(self, outbox: Outbox, interval_s: float = 0) -> None:
        """Publish the position of this controller if it has changed."""
        now_ms = self.clock.monotonic_ms()
        oldest = self.oldest if self.oldest >= 0 else self.stored + 1
        is_durable = self.history.is_durable
        me = ReaderPosition(
            self.settings.controller_id,
            self.url,
            oldest,
            self.stored,
            is_durable,
            self.internal_url,
        )
        if me == self._published or now_ms - self._published_ms < 1000 * interval_s:
            return
        await outbox.note(me)
        self._published, self._published_ms = me, now_ms

    async def _delete_expired(self) -> None:
        """Delete entries older than audit.retention.ms."""
        keep_ms, now_ms = self.settings.audit_retention_ms, self.clock.monotonic_ms()
        if keep_ms < 0 or now_ms - self._cleaned_ms < 1000 * RETENTION_INTERVAL_S:
            return
        self._cleaned_ms = now_ms
        wall_ms = self.clock.wall_ms()
        deleted = await self.history.forget_before(wall_ms - keep_ms, wall_ms)
        if deleted:
            self.oldest, _ = await self.history.ids()
            logger.info("expired audit entries deleted", count=deleted)


async def _is_restored(outbox: Outbox, earlier: Set[tuple[int, int]]) -> bool:
    """Tell whether a restore wrote what is there, which counts on the brokers' logs.

    `earlier` are the ids and times of the restores that the history has: a copy made after one of
    them has its entry, too.
    """
    for number in await outbox.ids():
        for record in await outbox.read(number, 1):
            is_restore = record.entry.kind == CLUSTER_RESTORED
            if is_restore and (record.id, record.entry.time) not in earlier:
                return True
    return False


def _address(reader: ReaderPosition) -> ServiceAddress:
    service = ServiceIdentity("controller", reader.reader)
    return ServiceAddress(service, reader.url, reader.internal_url)


def _storing(records: list[AuditRecord]) -> spans.Span:
    """Return the span of storing entries, which have one cause or several."""
    if not spans.is_on():
        return spans.NO_SPAN
    causes = sorted({record.entry.cause for record in records})
    attributes: dict[str, spans.Value] = {
        "leadline.entries": len(records),
        "leadline.causes": causes,
    }
    if len(causes) == 1:
        attributes["leadline.cause"] = causes[0]
    return spans.root_span("store audit entries", attributes)
