"""Writing committed offsets: batched for each group, answered only when written.

While one write of a group is under way, what comes in for it is gathered for the next,
of each partition the newest. So the rate of writes is bounded by the time of one and by
`offsets.commit.interval.ms`, however many members commit how often.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from leadline_client.errors import LeadlineError, NotCoordinator, StoreOutcomeUnknown
from leadline_common.leader_election import TermEnded
from leadline_common.zk.errors import ConnectionLoss, ZkError
from leadline_common.znodes import AuditEntry
from leadline_coordinator.domain.records import Committed, Partition
from leadline_coordinator.runtime.context import CoordinatorContext

_log = logging.getLogger(__name__)

Told: TypeAlias = Callable[[Mapping[Partition, Committed]], AuditEntry]
"""Makes the audit entry about offsets."""


class OffsetCommitter:
    """The committed offsets of one group, as they are in ZooKeeper, and the way there."""

    def __init__(
        self,
        context: CoordinatorContext,
        group: str,
        offsets: Mapping[Partition, Committed],
        topic_ids: Callable[[], Mapping[str, str]],
    ) -> None:
        self.offsets = dict(offsets)
        self._context = context
        self._group = group
        self._topic_ids = topic_ids
        self._pending: dict[Partition, Committed] = {}
        self._told: list[AuditEntry] = []
        self._written = _Outcome()
        self._being_written = _Outcome()
        self._being_written.succeed()
        self._task: asyncio.Task[None] | None = None

    async def commit(
        self, offsets: Mapping[Partition, Committed], told: Sequence[AuditEntry] = ()
    ) -> None:
        """Write offsets, with what the audit is told of that; return when they are durable.

        Raises:
            OutcomeUnknown: ZooKeeper was lost on the way.
            NotCoordinator: this process was succeeded; nothing was written.

        """
        self._pending.update(offsets)
        self._told.extend(told)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_all(), name=f"commit-{self._group}")
        await self._written.wait()

    async def flush(self) -> None:
        """Return when what was accepted until now is written, or failed to be."""
        waited_for = [self._being_written, *([self._written] if self._pending else [])]
        for outcome in waited_for:
            await outcome.over()

    async def delete(self, gone: Callable[[Partition], bool], told: Told | None = None) -> int:
        """Delete the offsets of partitions that are `gone`; return how many.

        Those that are still to be written count too: written later, they would be back.

        Raises:
            OutcomeUnknown: ZooKeeper was lost on the way.
            NotCoordinator: this process was succeeded; nothing was deleted.

        """
        self._drop_pending(gone)
        await self._being_written.over()
        partitions = [partition for partition in self.offsets if gone(partition)]
        if partitions:
            context = self._context
            with told_to_callers():
                entries = [] if told is None else [told({p: self.offsets[p] for p in partitions})]
                await context.store.delete_offsets(context.term, self._group, partitions, entries)
            for partition in partitions:
                self.offsets.pop(partition, None)
        return len(partitions)

    async def close(self) -> None:
        """Give up what is not written; whoever waits is told that it is not known."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._written.fail(StoreOutcomeUnknown("this coordinator has lost its office"))

    def _drop_pending(self, gone: Callable[[Partition], bool]) -> None:
        kept = {name: one for name, one in self._pending.items() if not gone(name)}
        if self._pending and not kept:  # nobody is left to tell those who wait
            self._written.succeed()
            self._written = _Outcome()
            self._told.clear()
        self._pending = kept

    async def _write_all(self) -> None:
        clock, interval_ms = self._context.clock, self._context.settings.offsets_commit_interval_ms
        while self._pending:
            begun_ms = clock.monotonic_ms()
            batch, self._pending = self._pending, {}
            told, self._told = self._told, []
            written, self._written = self._written, _Outcome()
            self._being_written = written
            try:
                await self._write(batch, told)
            except LeadlineError as error:
                written.fail(error)
            except Exception:
                _log.exception("offsets of group %r could not be written", self._group)
                written.fail(StoreOutcomeUnknown("the write failed; look before repeating it"))
            except asyncio.CancelledError:
                written.fail(StoreOutcomeUnknown("this coordinator has lost its office"))
                raise
            else:
                self.offsets.update(batch)
                written.succeed()
            left_ms = begun_ms + interval_ms - clock.monotonic_ms()
            if left_ms > 0:
                await asyncio.sleep(left_ms / 1000)

    async def _write(
        self, batch: Mapping[Partition, Committed], told: Sequence[AuditEntry]
    ) -> None:
        context, topic_ids = self._context, self._topic_ids()
        outcome = "written"
        try:
            with context.metrics.commit_seconds.time(), told_to_callers():
                await context.store.write_offsets(context.term, self._group, batch, topic_ids, told)
        except LeadlineError as error:
            outcome = error.outcome
            raise
        finally:
            context.metrics.commits.labels(outcome).inc(len(batch))


@contextmanager
def told_to_callers() -> Iterator[None]:
    """Turn what can go wrong with a write into what its caller may be told."""
    try:
        yield
    except TermEnded:
        raise NotCoordinator("another coordinator has been elected") from None
    except ConnectionLoss:
        raise StoreOutcomeUnknown("ZooKeeper was lost; look before repeating it") from None
    except ZkError as problem:
        _log.error("a write to ZooKeeper failed: %s", problem)
        raise StoreOutcomeUnknown("the write failed; look before repeating it") from None


class _Outcome:
    """What many wait for: one event, and one error for all of them."""

    __slots__ = ("_done", "_error")

    def __init__(self) -> None:
        self._done = asyncio.Event()
        self._error: LeadlineError | None = None

    async def over(self) -> None:
        await self._done.wait()

    async def wait(self) -> None:
        await self._done.wait()
        if self._error is not None:
            raise self._error

    def succeed(self) -> None:
        self._done.set()

    def fail(self, error: LeadlineError) -> None:
        if not self._done.is_set():
            self._error = error
            self._done.set()
