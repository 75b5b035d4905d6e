"""Writing the committed offsets of a group in batches; a commit is answered once written.

While a group's write is in progress, further commits collect for the next one, with the
newest offset of each partition. So the rate of writes is limited by the duration of a
write and by `offsets.commit.interval.ms`, however often members commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

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

_LEADERSHIP_LOST = "this coordinator has lost leadership; read the offsets before you retry"
_WRITE_FAILED = "the write failed; read the offsets before you retry"


class OffsetCommitter:
    """The committed offsets of one group as they are in ZooKeeper, and those still to write."""

    def __init__(
        self,
        context: CoordinatorContext,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        topic_ids: Callable[[], Mapping[str, str]],
    ) -> None:
        self.offsets = dict(offsets)
        self._context = context
        self._group = group
        self._topic_ids = topic_ids
        self._pending: dict[TopicPartition, CommittedOffset] = {}
        self._audit: list[AuditEntry] = []
        self._written = _Outcome()
        self._being_written = _Outcome()
        self._being_written.end()
        self._task: asyncio.Task[None] | None = None

    async def commit(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset],
        audit: Sequence[AuditEntry] = (),
    ) -> None:
        """Write offsets and audit entries; return when they are durable.

        Raises:
            OutcomeUnknown: the connection to ZooKeeper was lost.
            NotCoordinator: another coordinator was elected; nothing was written.

        """
        self._pending.update(offsets)
        self._audit.extend(audit)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_all(), name=f"commit-{self._group}")
        written = self._written
        await written.over.wait()
        if written.error is not None:
            raise written.error

    async def flush(self) -> None:
        """Return when the commits accepted so far are written, or have failed."""
        waited_for = [self._being_written, *([self._written] if self._pending else [])]
        for outcome in waited_for:
            await outcome.over.wait()

    async def delete(
        self, is_gone: Callable[[TopicPartition], bool], audit_of: AuditOf | None = None
    ) -> int:
        """Delete the offsets of the partitions that are gone, also pending ones; return how many.

        Raises:
            OutcomeUnknown: the connection to ZooKeeper was lost.
            NotCoordinator: another coordinator was elected; nothing was deleted.

        """
        self._drop_pending(is_gone)
        await self._being_written.over.wait()
        gone = [topic_partition for topic_partition in self.offsets if is_gone(topic_partition)]
        if gone:
            context = self._context
            with translated_store_errors():
                audit = [] if audit_of is None else [audit_of({p: self.offsets[p] for p in gone})]
                groups = context.store.groups
                await groups.delete_offsets(context.term, self._group, gone, audit)
            for topic_partition in gone:
                self.offsets.pop(topic_partition, None)
        return len(gone)

    async def close(self) -> None:
        """Drop what is not written; its commits end with an unknown outcome."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._written.end(StoreOutcomeUnknown(_LEADERSHIP_LOST))

    def _drop_pending(self, is_gone: Callable[[TopicPartition], bool]) -> None:
        kept = {key: offset for key, offset in self._pending.items() if not is_gone(key)}
        if self._pending and not kept:  # no write will complete these commits
            self._written.end()
            self._written = _Outcome()
            self._audit.clear()
        self._pending = kept

    async def _write_all(self) -> None:
        clock, interval_ms = self._context.clock, self._context.settings.offsets_commit_interval_ms
        while self._pending:
            begun_ms = clock.monotonic_ms()
            batch, self._pending = self._pending, {}
            audit, self._audit = self._audit, []
            written, self._written = self._written, _Outcome()
            self._being_written = written
            try:
                await self._write(batch, audit)
            except LeadlineError as error:
                written.end(error)
            except Exception:
                logger.exception("could not write offsets", group=self._group)
                written.end(StoreOutcomeUnknown(_WRITE_FAILED))
            except asyncio.CancelledError:
                written.end(StoreOutcomeUnknown(_LEADERSHIP_LOST))
                raise
            else:
                self.offsets.update(batch)
                written.end()
            left_ms = begun_ms + interval_ms - clock.monotonic_ms()
            if left_ms > 0:
                await asyncio.sleep(left_ms / 1000)

    async def _write(
        self, batch: Mapping[TopicPartition, CommittedOffset], audit: Sequence[AuditEntry]
    ) -> None:
        context, topic_ids = self._context, self._topic_ids()
        groups, outcome = context.store.groups, "written"
        try:
            with context.metrics.commit_seconds.time(), translated_store_errors():
                await groups.write_offsets(context.term, self._group, batch, topic_ids, audit)
        except LeadlineError as error:
            outcome = error.outcome
            raise
        finally:
            context.metrics.commits.labels(outcome).inc(len(batch))


@contextmanager
def translated_store_errors() -> Iterator[None]:
    """Translate errors of the store into errors for the caller of the API."""
    try:
        yield
    except TermEnded:
        raise NotCoordinator("another coordinator has been elected") from None
    except ConnectionLoss:
        reason = "the connection to ZooKeeper was lost; read the state before you retry"
        raise StoreOutcomeUnknown(reason) from None
    except ZkError as problem:
        logger.error("a write to ZooKeeper failed", reason=str(problem))
        raise StoreOutcomeUnknown(_WRITE_FAILED) from None


@dataclass(slots=True)
class _Outcome:
    """The outcome of one write, for all commits that wait for it."""

    over: asyncio.Event = field(default_factory=asyncio.Event)
    error: LeadlineError | None = None

    def end(self, error: LeadlineError | None = None) -> None:
        """End with success, or with an error; only the first end counts."""
        if not self.over.is_set():
            self.error = error
            self.over.set()
