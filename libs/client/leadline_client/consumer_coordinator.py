"""The consumer's side of its group: rebalance notices, and commits of offsets.

The application learns of a rebalance only when it polls, so no partition is taken away while it
processes records of it: a Stop waits for the next poll, as long as the coordinator can wait.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

from leadline_client.client import AsyncClient
from leadline_client.commit_tracker import CommitTracker
from leadline_client.consumer_settings import ConsumerSettings, Notice
from leadline_client.errors import (
    CoordinatorNotAvailable,
    LeaderNotAvailable,
    LeadlineError,
    LogTruncated,
    OffsetOutOfRange,
    PartitionNotOwned,
    RebalanceInProgress,
    StaleGeneration,
    TopicIdMismatch,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
)
from leadline_client.fetching import ConsumedRecord, Fetcher, TopicIdGroup
from leadline_client.group_session import Clock, GroupSession
from leadline_client.groups import commit_offsets
from leadline_client.membership import AssignPartitions, ConsumerSubscription
from leadline_client.offset_reset import reset_after
from leadline_client.ownership import Ownership
from leadline_client.wire import LogPosition, TopicPartition

_RETRY_PAUSE_S: Final = 0.2
_PLACE: Final = attrgetter("topic", "partition")
_RETRY: Final = (StaleGeneration, RebalanceInProgress, CoordinatorNotAvailable, LeaderNotAvailable)
"""What refuses a commit only for now: a rebalance, or an election."""


class ConsumerCoordinator:
    """One consumer's part in its group; it is the `SessionListener` of its session."""

    def __init__(
        self,
        client: AsyncClient,
        group: str,
        fetcher: Fetcher[Any, Any],
        settings: ConsumerSettings,
        *,
        clock: Clock,
    ) -> None:
        self._client = client
        self._group = group
        self._fetcher = fetcher
        self._offset_reset = settings.offset_reset
        self._clock = clock
        self._session: GroupSession | None = None
        self._assigned: set[TopicPartition] = set()
        self._ownership = Ownership()
        self._notices: deque[Notice] = deque()
        self._revoking: set[TopicPartition] = set()
        self._closing = False
        self._commits = CommitTracker()
        self._committing = asyncio.Lock()
        self._sequences = itertools.count(1)
        self._auto_commit_ms = settings.auto_commit_ms
        self._committer: asyncio.Task[None] | None = None
        self.threads: tuple[tuple[TopicPartition, ...], ...] = ()

    @property
    def session(self) -> GroupSession:
        """The session of a consumer that has subscribed."""
        if self._session is None:
            raise RuntimeError("the consumer has not subscribed")
        return self._session

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions of which the application knows that they are assigned to it."""
        return tuple(sorted(self._assigned))

    async def subscribe(self, subscription: ConsumerSubscription) -> None:
        """Join the group, or change the subscription."""
        if self._session is not None:
            await self._session.resubscribe(subscription)
            return
        self._session = GroupSession(
            self._client, self._group, subscription, self, clock=self._clock
        )
        if self._auto_commit_ms is not None:
            committing = self._commit_periodically(self._auto_commit_ms / 1000)
            self._committer = asyncio.create_task(committing)

    # -- Called by the session -------------------------------------------------

    def on_assigned(self, assigned: AssignPartitions) -> None:
        """Begin to read new partitions, and queue a notice for the application."""
        if self._closing:
            return
        for topic_partition, position in assigned.added:
            self._ownership.begin(topic_partition)
            self._commits.add(topic_partition, position)
            self._start_reading(topic_partition, position)
        self._fetcher.expect_topics(assigned.added, dict(assigned.topic_ids))
        self.threads = assigned.threads
        new = (*(one for one, _ in assigned.added), *self._keep_revoked())
        if new:
            self._notices.append(Notice("assigned", new))

    def on_revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Ask the application to give up partitions; drop at once those that it does not know."""
        revoked = self._revoked()
        known = self._known()
        unknown = [one for one in partitions if one not in known]
        to_revoke = tuple(one for one in partitions if one in known - revoked)
        self._drop(unknown)
        if to_revoke:
            self._notices.append(Notice("revoked", to_revoke))
        self.session.confirm_revoked(unknown)

    def on_lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Stop reading at once; the application learns of it at its next poll."""
        self._ownership.end(partitions)
        known = self._known() - self._revoking
        lost = tuple(one for one in partitions if one in known)
        self._revoking.difference_update(partitions)
        self._drop(partitions)
        if lost:
            self._notices.append(Notice("lost", lost))

    def on_change(self) -> None:
        """Have a waiting poll check again."""
        self._fetcher.news.set()

    # -- Called by the consumer ------------------------------------------------

    def mark_consumed(self) -> None:
        """Note that the application has processed all records that it got."""
        self._commits.mark_consumed(self._fetcher.known_position)

    def mark_delivered(self, records: Iterable[ConsumedRecord[Any, Any]]) -> None:
        """Note records that the application gets."""
        partitions = [TopicPartition(*place) for place in set(map(_PLACE, records))]
        self._ownership.tell_restarted(partitions)
        self._commits.mark_delivered(partitions)

    def mark_sought(self, topic_partition: TopicPartition) -> None:
        """Note that the application has chosen another position."""
        self._commits.mark_delivered([topic_partition])

    def check(self) -> None:
        """Raise the error that has ended the membership or the periodic commits, if any."""
        if self.session.error is not None:
            raise self.session.error
        committer = self._committer
        if committer is not None and committer.done() and not committer.cancelled():
            committer.result()  # Nothing else awaits it.

    def may_deliver(self) -> bool:
        """Tell whether the application may get records now."""
        return not self._notices and self.session.may_consume()

    async def next_notice(self) -> Notice | None:
        """Return the next notice for the application; call `notice_handled` after its listener.

        Before a notice of revoked partitions, their consumed offsets are committed. They are lost
        if the lease is over by then, or the channel: another member may own them already.
        """
        if not self._notices:
            return None
        notice = self._notices.popleft()
        if notice.kind == "assigned":
            self._assigned.update(notice.partitions)
            self._ownership.tell(notice.partitions)
        elif notice.kind == "revoked":
            self._revoking.update(notice.partitions)
            try:
                await self._auto_commit(self.session.answer_within_s)
            except BaseException:  # The poll was cancelled: nobody has been told.
                self.put_back(notice)
                raise
            if not self.session.may_consume():
                return Notice("lost", notice.partitions)
        return notice

    def notice_handled(self, notice: Notice) -> None:
        """Note that the application's listener has returned."""
        if notice.kind == "assigned":
            return
        self._assigned.difference_update(notice.partitions)
        # While the listener ran, a partition may have been lost and assigned again.
        revoked = self._revoking.intersection(notice.partitions)
        self._revoking -= revoked
        self._fetcher.remove(revoked)
        self._commits.remove(revoked)
        self.session.confirm_revoked(revoked)

    def put_back(self, notice: Notice) -> None:
        """Have the next poll begin with a notice; what it revokes may have been lost meanwhile."""
        left = set(notice.partitions)
        if notice.kind == "revoked":
            left &= self._revoking
            self._revoking -= left
        lost = tuple(one for one in notice.partitions if one not in left)
        put_back = (notice.without(lost), Notice("lost", lost))
        self._notices.extendleft(notice for notice in reversed(put_back) if notice.partitions)

    def revoke_all(self) -> None:
        """Revoke all partitions, and accept no more of them, because the consumer closes."""
        self._closing = True
        self.on_revoked(tuple(sorted(self.session.owned)))

    def positions(self) -> dict[TopicPartition, LogPosition]:
        """Return the position of every partition: all records that the application has got."""
        self._ownership.tell_restarted(self.assignment)
        known = ((one, self._fetcher.known_position(one)) for one in self.assignment)
        return {one: position for one, position in known if position is not None}

    async def commit(self, offsets: Mapping[TopicPartition, LogPosition], timeout_s: float) -> None:
        """Commit positions in owned partitions; wait for a rebalance or a new coordinator.

        Raises:
            LeadlineError: not committed: UnknownMember, StaleGeneration, …
            PartitionNotOwned: some partitions were lost; the others may be committed.

        """
        deadline_s = self._clock() + timeout_s
        known = self._ownership.known(offsets)
        # A topic may be created again while this waits: these are offsets of the present one.
        topics = self._fetcher.by_topic_id(offsets)
        async with self._committing:
            while offsets:
                left_s = deadline_s - self._clock()
                lost = self._ownership.lost_of(known)
                kept = {one: at for one, at in offsets.items() if one not in lost}
                try:
                    await self._commit_once(topics, kept, left_s)
                except _RETRY:
                    if not await self._may_retry(left_s):
                        raise
                else:
                    self._commits.mark_committed(kept)
                    if lost:
                        names = ", ".join(map(str, sorted(lost)))
                        raise PartitionNotOwned(f"lost since the offsets were consumed: {names}")
                    return

    async def leave(self, *, quietly: bool) -> None:
        """Leave the group, once the application has given up all partitions.

        If it is cancelled, the channel is closed: the coordinator notices that.
        """
        session = self._session
        if session is None:
            return
        try:
            if self._committer is not None:
                self._committer.cancel()
                await asyncio.wait([self._committer])
            await session.stop_waiting()
            async with self._committing:  # Commits that were asked for before are of this member.
                await session.leave(quietly=quietly)
        finally:  # A member that answers frames keeps its partitions.
            session.end()
            self._session = None

    def recover(self, topic_partition: TopicPartition, error: LeadlineError) -> bool:
        """Handle a failed read; see `fetching.Recover`."""
        if isinstance(error, UnknownTopic | UnknownPartition):
            return True  # The partition was deleted: the coordinator will revoke it.
        start = reset_after(error, self._offset_reset)
        if start is None:
            return False
        if isinstance(error, TopicIdMismatch):
            self._ownership.restart(topic_partition)
        if isinstance(error, LogTruncated):
            self._fetcher.seek(topic_partition, start)
        else:
            self._fetcher.restart(topic_partition, start)
        self._commits.add(topic_partition, None)  # Consumed offsets belong to another log.
        return True

    # -- Internal ---------------------------------------------------------------

    def _known(self) -> set[TopicPartition]:
        """Return the partitions that the application knows of and has not lost."""
        return self._assigned - self._queued("lost")

    def _revoked(self) -> set[TopicPartition]:
        """Return the partitions that the application is giving up, or will at its next poll."""
        return self._revoking | self._queued("revoked")

    def _queued(self, kind: str) -> set[TopicPartition]:
        return {one for notice in self._notices if notice.kind == kind for one in notice.partitions}

    def _start_reading(self, topic_partition: TopicPartition, position: LogPosition | None) -> None:
        if position is not None:
            self._fetcher.add(topic_partition, position)
        elif self._offset_reset == "error":
            problem = f"{topic_partition} has no committed offset to begin at"
            self._fetcher.add_stuck(topic_partition, OffsetOutOfRange(problem))
        else:
            self._fetcher.add(topic_partition, self._offset_reset or "earliest")

    def _keep_revoked(self) -> tuple[TopicPartition, ...]:
        """Keep revoked partitions that a Start has assigned to this consumer again.

        Their Stop came over a channel that has ended. Partitions whose revocation the application
        is handling now are returned: they need a new notice of assignment.
        """
        kept = self._revoked() & self.session.owned
        self._withdraw_notices(kept)
        revoking = tuple(sorted(self._revoking & kept))
        self._revoking.difference_update(revoking)
        return revoking

    def _drop(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these, and withdraw their queued notices."""
        dropped = frozenset(topic_partitions)
        self._fetcher.remove(dropped)
        self._commits.remove(dropped)
        self._withdraw_notices(dropped)

    def _withdraw_notices(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Remove these partitions from the queued notices, except from notices of losses."""
        notices = (notice.without(topic_partitions) for notice in self._notices)
        self._notices = deque(notice for notice in notices if notice.partitions)

    async def _commit_once(
        self,
        groups: Iterable[TopicIdGroup],
        offsets: Mapping[TopicPartition, LogPosition],
        timeout_s: float,
    ) -> None:
        metadata = None if self._session is None else self._session.group_metadata
        if metadata is None and (self._session is not None or self._closing):
            raise UnknownMember("the consumer is not a member of its group now")
        limit_s = max(timeout_s, _RETRY_PAUSE_S)
        recreated: TopicIdMismatch | None = None
        for group in groups:
            of_group = {one: offsets[one] for one in group.partitions if one in offsets}
            if not of_group:
                continue
            flow = commit_offsets(
                self._client.core,
                self._group,
                of_group,
                metadata,
                sequence=None if metadata is None else next(self._sequences),
                topic_ids=group.topic_ids,
                timeout_s=limit_s,
            )
            try:
                if metadata is None:  # There are no sequences: commits may not overtake each other.
                    await self._client.run_in_turn(self._group, flow, limit_s)
                else:
                    await self._client.run(flow)
            except TopicIdMismatch as mismatch:  # Another group may have the present id.
                recreated = mismatch
        if recreated is not None:
            raise recreated

    async def _may_retry(self, left_s: float) -> bool:
        """Wait for the next Start, unless that Start waits for the application."""
        if self._session is None or self._closing or self._revoked() or left_s <= 0:
            return False
        await asyncio.sleep(_RETRY_PAUSE_S)
        return await self._session.until_settled(left_s)

    async def _commit_periodically(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            await self._auto_commit(interval_s)

    async def _auto_commit(self, timeout_s: float) -> None:
        """Commit consumed offsets; after a failure this consumer or the next owner retries."""
        if self._auto_commit_ms is None:
            return
        try:
            async with self._committing:
                offsets = self._commits.uncommitted(self.session.owned)
                if offsets:
                    topics = self._fetcher.by_topic_id(offsets)
                    await self._commit_once(topics, offsets, timeout_s)
                    self._commits.mark_committed(offsets)
        except LeadlineError:
            return
