"""The committed offsets of a group: one writer, in order, in batches.

A commit is answered once written. While a write is in progress, further commits and
deletions collect for the next one, with the newest change of each partition. So the rate of
writes is limited by the duration of a write and by `offsets.commit.interval.ms`, however
often members commit.

A change is written until ZooKeeper has it, or until the term ends (rule R8): a write that
fails is repeated with the next one, together with its audit entries. Whoever waited for it
is told that its outcome is unknown.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import structlog

from leadline_client.errors import LeadlineError, NotCoordinator, StoreOutcomeUnknown
from leadline_client.wire import TopicPartition
from leadline_common.leader_election import TermEnded
from leadline_common.zk.errors import ConnectionLoss, ZkError
from leadline_common.znodes import AuditEntry
from leadline_coordinator.domain.records import CommittedOffset
from leadline_coordinator.runtime.context import CoordinatorContext

logger = structlog.get_logger(__name__)

AuditOf: TypeAlias = Callable[[Mapping[TopicPartition, CommittedOffset]], AuditEntry]
"""Returns the audit entry about some offsets."""
IsGone: TypeAlias = Callable[[TopicPartition, CommittedOffset], bool]
"""Tells whether an offset is to be deleted."""

_Deleted: TypeAlias = dict[TopicPartition, CommittedOffset | None]

_LEADERSHIP_LOST: Final = "this coordinator has lost leadership; read the offsets before you retry"
_WRITE_FAILED: Final = "the write failed; read the offsets before you retry"
_RETRY_S: Final = 0.2


class OffsetCommitter:
    """The committed offsets of one group as they are in ZooKeeper, and those still to write."""

    def __init__(
        self,
        context: CoordinatorContext,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
    ) -> None:
        self.offsets = dict(offsets)
        """What is committed and valid. Changed in place, because the group holds a reference."""
        self._by_topic = Counter(one.topic for one in self.offsets)
        """How many offsets of each topic are in `offsets`."""
        self._context = context
        self._group = group
        self._pending: dict[TopicPartition, CommittedOffset | None] = {}
        self._in_flight: dict[TopicPartition, CommittedOffset | None] = {}
        self._audit: list[AuditEntry] = []
        self._written = WriteOutcome()
        self._being_written = WriteOutcome()
        self._being_written.end()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def commit(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset],
        audit: Sequence[AuditEntry] = (),
    ) -> None:
        """Write offsets and audit entries; return when they are durable.

        The order of the calls is the order of the commits: nothing is awaited before.

        Raises:
            OutcomeUnknown: the connection to ZooKeeper was lost.
            NotCoordinator: another coordinator was elected; nothing was written.

        """
        self._pending.update(offsets)
        self._audit.extend(audit)
        await self._pending_write().wait()

    @property
    def last_commit_ms(self) -> int:
        """When the latest commit was accepted, written or not (Unix ms); 0 without any."""
        return max((offset.time_ms for offset in self._newest().values()), default=0)

    async def flush(self) -> None:
        """Return when the commits accepted so far are written, or have failed."""
        waited_for = [self._being_written, *([self._written] if self._pending else [])]
        for outcome in waited_for:
            await outcome.over.wait()

    async def delete(self, is_gone: IsGone, audit_of: AuditOf | None = None) -> int:
        """Delete offsets, also those still to write; return how many once that is durable.

        Raises:
            OutcomeUnknown: the connection to ZooKeeper was lost.
            NotCoordinator: another coordinator was elected; nothing was deleted.

        """
        newest = self._newest()
        gone = {one: offset for one, offset in newest.items() if is_gone(one, offset)}
        if gone:
            self._pending.update(dict.fromkeys(gone))
            self._audit += [] if audit_of is None else [audit_of(gone)]
            await self._pending_write().wait()
        return len(gone)

    def topics(self) -> Set[str]:
        """Return the topics with committed offsets."""
        return set(self._by_topic)

    def drop(self, is_gone: IsGone, topics: Collection[str]) -> None:
        """Delete offsets of these topics that are no longer valid: from now on nobody gets them.

        There may be a million offsets, and few topics change: a group without offsets of these is
        not looked at further. They are deleted from ZooKeeper afterwards, however long that takes.
        """

        def found_in(layer: Mapping[TopicPartition, CommittedOffset | None]) -> _Deleted:
            return {
                one: None
                for one, offset in layer.items()
                if offset and one.topic in topics and is_gone(one, offset)
            }

        gone = {} if self._by_topic.keys().isdisjoint(topics) else found_in(self.offsets)
        self._apply(gone)
        for layer in (self._in_flight, self._pending):
            found = found_in(layer)
            for topic_partition in found:
                del layer[topic_partition]
            gone |= found
        if gone:
            self._pending = gone | self._pending
            self._pending_write()

    async def close(self) -> None:
        """Drop what is not written, and write nothing more; commits end with an unknown outcome."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._written.end(StoreOutcomeUnknown(_LEADERSHIP_LOST))

    def _newest(self) -> dict[TopicPartition, CommittedOffset]:
        """Return the offsets as they are once everything is written."""
        newest = self.offsets | self._in_flight | self._pending
        return {one: offset for one, offset in newest.items() if offset is not None}

    def _pending_write(self) -> WriteOutcome:
        """Return the outcome of the next write; start the writer if it does not run."""
        if not self._closed and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._write_all(), name=f"commit-{self._group}")
        return self._written

    async def _write_all(self) -> None:
        clock, interval_ms = self._context.clock, self._context.settings.offsets_commit_interval_ms
        while self._pending:
            begun_ms = clock.monotonic_ms()
            error = await self._write_pending()
            if isinstance(error, NotCoordinator):
                self._written.end(error)
                self._written = WriteOutcome()
                return
            left_ms = begun_ms + interval_ms - clock.monotonic_ms()
            pause_s = max(left_ms / 1000, 0 if error is None else _RETRY_S)
            if pause_s > 0:
                await asyncio.sleep(pause_s)

    async def _write_pending(self) -> LeadlineError | None:
        """Write what is pending; return why that failed. It is then pending again."""
        self._in_flight, self._pending = self._pending, {}
        batch, (audit, self._audit) = dict(self._in_flight), (self._audit, [])
        self._being_written = written = self._written
        self._written = WriteOutcome()
        error: LeadlineError | None = StoreOutcomeUnknown(_LEADERSHIP_LOST)  # if cancelled
        try:
            error = await self._write(batch, audit)
        finally:
            if error is None:
                self._apply(self._in_flight)
            else:
                self._pending = self._in_flight | self._pending
                self._audit[:0] = audit
            self._in_flight = {}
            written.end(error)
        return error

    def _apply(self, written: Mapping[TopicPartition, CommittedOffset | None]) -> None:
        for topic_partition, offset in written.items():
            topic = topic_partition.topic
            self._by_topic[topic] += (offset is not None) - (topic_partition in self.offsets)
            if offset is not None:
                self.offsets[topic_partition] = offset
            else:
                self.offsets.pop(topic_partition, None)
            if not self._by_topic[topic]:
                del self._by_topic[topic]

    async def _write(
        self,
        batch: Mapping[TopicPartition, CommittedOffset | None],
        audit: Sequence[AuditEntry],
    ) -> LeadlineError | None:
        """Write a batch; return why that failed."""
        context = self._context
        groups, outcome, failure = context.store.groups, "written", None
        try:
            with context.metrics.commit_seconds.time(), translated_store_errors(context):
                await groups.write_offsets(context.term, self._group, batch, audit)
        except LeadlineError as error:
            outcome, failure = error.outcome, error
        except Exception:
            more_before = context.failed_writes.admit("offsets", context.clock.monotonic_ms())
            if more_before is not None:
                logger.exception(
                    "could not write offsets", group=self._group, more_before=more_before
                )
            outcome, failure = "unknown", StoreOutcomeUnknown(_WRITE_FAILED)
        commits = sum(offset is not None for offset in batch.values())
        context.metrics.commits.labels(outcome).inc(commits)
        return failure


@contextmanager
def translated_store_errors(context: CoordinatorContext) -> Iterator[None]:
    """Translate errors of the store into errors for the caller of the API."""
    try:
        yield
    except TermEnded:
        raise NotCoordinator("another coordinator has been elected") from None
    except ConnectionLoss:
        reason = "the connection to ZooKeeper was lost; read the state before you retry"
        raise StoreOutcomeUnknown(reason) from None
    except ZkError as problem:
        kind, now_ms = type(problem).__name__, context.clock.monotonic_ms()
        more_before = context.failed_writes.admit(kind, now_ms)
        if more_before is not None:
            reason = str(problem)
            logger.error("a write to ZooKeeper failed", reason=reason, more_before=more_before)
        raise StoreOutcomeUnknown(_WRITE_FAILED) from None


@dataclass(slots=True)
class WriteOutcome:
    """The outcome of one write, for all that wait for it."""

    over: asyncio.Event = field(default_factory=asyncio.Event)
    error: LeadlineError | None = None

    def end(self, error: LeadlineError | None = None) -> None:
        """End with success, or with an error; only the first end counts."""
        if not self.over.is_set():
            self.error = error
            self.over.set()

    async def wait(self) -> None:
        """Wait for the end; raise its error."""
        await self.over.wait()
        if self.error is not None:
            raise self.error
