"""Operations on the offsets of a group: commit, reset, delete, and the lag."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from leadline_client.errors import (
    InvalidRequest,
    LeaderNotAvailable,
    LeadlineError,
    OffsetOutOfRange,
    UnknownPartition,
)
from leadline_client.wire import TopicPartition
from leadline_common.group_commits import CommitRequest, OffsetToCommit, ResetTo
from leadline_common.slices import in_order, slices
from leadline_common.zk.errors import ZkError
from leadline_common.znodes import AuditEntry
from leadline_coordinator.domain.commits import (
    check_owned,
    check_without_members,
    committing_member,
    existing_topic,
    first_epoch,
    is_outdated,
    is_superseded,
)
from leadline_coordinator.domain.log_ends import LogPoint, later
from leadline_coordinator.domain.members import GroupMember
from leadline_coordinator.domain.records import CommittedOffset, Ends, TopicState
from leadline_coordinator.runtime.audit import (
    group_entry,
    is_recorded,
    offsets_by_topic,
    refusals_audited,
    write_audit,
)
from leadline_coordinator.runtime.committer import translated_store_errors
from leadline_coordinator.runtime.coordinator import Coordinator
from leadline_coordinator.runtime.group_checks import check_readable
from leadline_coordinator.runtime.group_manager import GroupManager


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """The outcome for one offset: refused, superseded by a later commit, or durable."""

    refusal: LeadlineError | None = None
    superseded: bool = False


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of a group in one partition, in records; None means unknown."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    member: str | None

    @property
    def lag(self) -> int | None:
        """Records between the committed offset and the end."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """The change of one partition's offset by a reset."""

    topic: str
    partition: int
    previous: int | None
    offset: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


class GroupOffsets:
    """The offsets of all groups of one coordinator."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._context = coordinator.context

    async def commit(self, group: str, request: CommitRequest) -> list[CommitOutcome]:
        """Commit offsets; return the outcome of each.

        Raises:
            UnknownMember, WrongMemberSecret, StaleGeneration: the caller may not commit.
            GroupNotEmpty: the caller names no member, and the group has some.
            RebalanceInProgress: the group is being deleted.
            OutcomeUnknown: the connection to ZooKeeper was lost.

        """
        self._member(group, request)  # for a stranger no leader is asked
        beyond = await self._coordinator.log_ends.refusals(self._points(request))
        member = self._member(group, request)
        outcomes: list[CommitOutcome] = []
        accepted: dict[TopicPartition, CommittedOffset] = {}
        for new in request.offsets:
            topic_partition = TopicPartition(new.topic, new.partition)
            try:
                committed = self._acceptable(new, member, request.topic_ids.get(new.topic))
                if topic_partition in beyond:
                    raise beyond[topic_partition]
            except LeadlineError as refusal:
                self._context.metrics.commits.labels("refused").inc()
                outcomes.append(CommitOutcome(refusal))
                continue
            superseded = is_superseded(member, topic_partition, request.sequence)
            outcomes.append(CommitOutcome(superseded=superseded))
            if not superseded:
                accepted[topic_partition] = committed
        if accepted:
            await (await self._manager_for_writing(group, member)).committer.commit(accepted)
        return outcomes

    def _points(self, request: CommitRequest) -> dict[TopicPartition, LogPoint]:
        """Return the furthest point that a request commits in each existing log."""
        topics = self._coordinator.topics.topics
        points: dict[TopicPartition, LogPoint] = {}
        for new in request.offsets:
            topic, one = topics.get(new.topic), TopicPartition(new.topic, new.partition)
            if topic is not None and new.partition < topic.partitions:
                epoch = -1 if new.leader_epoch is None else new.leader_epoch
                points[one] = later(points.get(one), LogPoint(topic.topic_id, new.offset, epoch))
        return points

    def _acceptable(
        self, new: OffsetToCommit, member: GroupMember | None, topic_id: str | None
    ) -> CommittedOffset:
        """Return an offset as it is committed.

        Raises:
            LeadlineError: it may not be committed.

        """
        topic_partition = TopicPartition(new.topic, new.partition)
        topic = self._existing(topic_partition, topic_id)
        check_owned(member, topic_partition)
        now_ms = self._context.time.latest_ms()
        first = first_epoch(topic, new.partition, new.leader_epoch)
        committed = CommittedOffset(
            new.offset, now_ms, new.leader_epoch, new.metadata, topic.topic_id, first
        )
        if is_outdated(self._coordinator.topics.topics, topic_partition, committed):
            raise UnknownPartition(
                f"{topic_partition} was removed and added again: the offset is one of the former"
            )
        return committed

    async def reset(
        self,
        group: str,
        to: ResetTo,
        topic_partitions: Collection[TopicPartition],
        *,
        timestamp: int | None = None,
        offsets: Mapping[TopicPartition, int] | None = None,
        dry_run: bool = False,
    ) -> list[OffsetReset]:
        """Set the offsets of a group without members; return the changes, in order.

        Without `topic_partitions`, reset all that the group has committed offsets of.

        Raises:
            UnknownGroup: there is no such group, and no partition is named.
            GroupNotEmpty: it has members.
            NotCoordinator: another coordinator was elected.
            UnknownTopic, UnknownPartition: there is no such partition.
            OffsetOutOfRange: an explicit offset is not in the log.
            LeaderNotAvailable: the leader of a partition does not answer.
            RebalanceInProgress: the group is being deleted, or former members may be consuming.
            TopicIdMismatch: a topic was recreated meanwhile.

        """
        async with refusals_audited(self._context, "reset_offsets", group):
            check_readable(self._context, group)
            if group in self._coordinator.groups:
                await self._coordinator.without_members(group)
            ids = dict(self._coordinator.topics.topic_ids)
            changes = await self._plan_reset(group, to, topic_partitions, timestamp, offsets or {})
            if dry_run:
                entry = self._reset_entry("reset_offsets", group, changes, outcome="dry_run")
                if is_recorded(self._context, entry.kind, entry.outcome):
                    await write_audit(self._context, entry)
            if dry_run or not changes:
                return changes
            manager = await self._manager_for_writing(group, None)
            now_ms = self._context.time.latest_ms()
            new = {}
            for one in changes:
                topic = self._existing(one.topic_partition, ids[one.topic])
                first = first_epoch(topic, one.partition, None)
                new[one.topic_partition] = CommittedOffset(
                    one.offset, now_ms, topic_id=topic.topic_id, first_epoch=first
                )
            entry = self._reset_entry("offsets_reset", group, changes)
            await manager.committer.commit(new, [entry])
        return changes

    async def _plan_reset(
        self,
        group: str,
        to: ResetTo,
        topic_partitions: Collection[TopicPartition],
        timestamp: int | None,
        offsets: Mapping[TopicPartition, int],
    ) -> list[OffsetReset]:
        """Return what a reset changes."""
        before = self._committed(group, is_new=bool(topic_partitions or offsets))
        wanted = set(topic_partitions or offsets or before)
        for topic_partition in wanted:
            self._existing(topic_partition)
        ends = await self._ends(wanted, timestamp)
        missing = sorted(wanted - ends.keys())
        if missing:
            raise LeaderNotAvailable(f"the leader of {missing[0]} does not answer")
        targets = {one: _target(one, to, ends[one], offsets) for one in sorted(wanted)}
        return [
            OffsetReset(*one, before[one].offset if one in before else None, offset)
            for one, offset in targets.items()
        ]

    def _reset_entry(
        self, kind: str, group: str, changes: Sequence[OffsetReset], outcome: str = "done"
    ) -> AuditEntry:
        return group_entry(
            self._context,
            kind,
            group,
            outcome=outcome,
            before=offsets_by_topic({one.topic_partition: one.previous for one in changes}),
            after=offsets_by_topic({one.topic_partition: one.offset for one in changes}),
        )

    async def lag(self, group: str) -> list[PartitionLag]:
        """Return the lag of each partition that a group has committed or owns, in order."""
        manager = self._coordinator.manager(group)
        owners, committed = manager.group.owners, manager.committer.offsets
        topic_partitions = owners.keys() | committed.keys()
        ends = await self._ends(topic_partitions, None)
        found: list[PartitionLag] = []
        async for some in slices(in_order(topic_partitions, lambda one: one)):
            found += [
                PartitionLag(
                    *one,
                    committed=committed[one].offset if one in committed else None,
                    end=ends[one].end if one in ends else None,
                    member=owners.get(one),
                )
                for one in some
            ]
        return found

    async def delete(self, group: str, topic: str | None = None) -> int:
        """Delete offsets of a group without members, of one topic or all; return how many.

        Raises:
            UnknownGroup: there is no such group.
            GroupNotEmpty: it has members.
            RebalanceInProgress: the group is being deleted, or former members may be consuming.
            NotCoordinator: another coordinator was elected.

        """

        def audit_of(deleted: Mapping[TopicPartition, CommittedOffset]) -> AuditEntry:
            before = offsets_by_topic({key: value.offset for key, value in deleted.items()})
            return group_entry(self._context, "offsets_deleted", group, before=before)

        async with refusals_audited(self._context, "delete_offsets", group):
            manager = await self._coordinator.without_members(group)
            manager.check_exists()
            return await manager.committer.delete(
                lambda topic_partition, _: topic is None or topic_partition.topic == topic, audit_of
            )

    async def _ends(
        self, topic_partitions: Collection[TopicPartition], timestamp: int | None
    ) -> Mapping[TopicPartition, Ends]:
        if not topic_partitions:
            return {}
        try:
            brokers = await self._context.store.brokers()
        except ZkError:
            return {}
        return await self._context.brokers.offsets(brokers, topic_partitions, timestamp)

    def _member(self, group: str, by: CommitRequest) -> GroupMember | None:
        """Return the member that commits; None if none is named and the group has none."""
        if by.member is None and group not in self._coordinator.groups:
            return None
        manager = self._coordinator.manager(group)
        manager.check_exists()
        with self._context.metrics.refused_secrets_counted("commit"):
            return committing_member(
                manager.group, by.member, by.generation, by.coordinator_epoch, by.secret
            )

    def _committed(self, group: str, *, is_new: bool) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the offsets of a group without members; none if it does not exist yet."""
        if is_new and group not in self._coordinator.groups:
            return {}
        manager = self._coordinator.manager(group)
        manager.check_exists()
        check_without_members(manager.group)
        return manager.committer.offsets

    async def _manager_for_writing(self, group: str, member: GroupMember | None) -> GroupManager:
        """Return the manager of a group; create and record the group if it does not exist.

        Nothing is awaited for a group that exists, so that commits keep their order.

        Raises:
            GroupNotEmpty: without a member, if a consumer has joined meanwhile.
            RebalanceInProgress: the group is being deleted.

        """
        is_new = group not in self._coordinator.groups
        manager = self._coordinator.manager_or_new(group)
        if is_new:
            with translated_store_errors(self._context):
                await manager.record(manager.group.record())
        manager.check_exists()
        if member is None:
            check_without_members(manager.group)
        return manager

    def _existing(self, one: TopicPartition, topic_id: str | None = None) -> TopicState:
        return existing_topic(self._coordinator.topics.topics, one, topic_id)


def _target(
    topic_partition: TopicPartition,
    to: ResetTo,
    ends: Ends,
    offsets: Mapping[TopicPartition, int],
) -> int:
    match to:
        case "earliest":
            return ends.start
        case "latest":
            return ends.end
        case "timestamp":
            return ends.end if ends.found is None else ends.found
        case "offsets":
            if topic_partition not in offsets:
                raise InvalidRequest(f"body.offsets: {topic_partition} is missing")
            offset = offsets[topic_partition]
            if not ends.start <= offset <= ends.end:
                raise OffsetOutOfRange(
                    f"{topic_partition} goes from {ends.start} to {ends.end}, not {offset}"
                )
            return offset
