"""What can be done with offsets of a group: commit, read, reset, compare with the ends of logs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from leadline_client.errors import (
    GroupNotEmpty,
    InvalidRequest,
    LeaderNotAvailable,
    LeadlineError,
    OffsetOutOfRange,
    UnknownPartition,
    UnknownTopic,
)
from leadline_common.zk.errors import ZkError
from leadline_common.znodes import AuditEntry
from leadline_coordinator.domain.commits import check_owned, committing_member
from leadline_coordinator.domain.members import Member
from leadline_coordinator.domain.records import Committed, Ends, Partition
from leadline_coordinator.runtime.audit import (
    entry_about,
    offsets_by_topic,
    refusals_told,
    tell,
)
from leadline_coordinator.runtime.committer import told_to_callers
from leadline_coordinator.runtime.coordinator import Coordinator
from leadline_coordinator.runtime.group_manager import GroupManager

ResetTo: TypeAlias = Literal["earliest", "latest", "timestamp", "offsets"]


@dataclass(frozen=True, slots=True)
class NewOffset:
    """An offset to commit: the next record to read."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Committer:
    """Who commits; without a member a group that has none is committed for."""

    member: str | None = None
    generation: int | None = None
    coordinator_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a group is behind in one partition, in records; None where it is not known."""

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
class Reset:
    """What a reset changes in one partition."""

    topic: str
    partition: int
    previous: int | None
    offset: int


class GroupOffsets:
    """The offsets of the groups of one coordinator."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._context = coordinator.context

    async def commit(
        self, group: str, by: Committer, offsets: Sequence[NewOffset]
    ) -> list[LeadlineError | None]:
        """Commit offsets; return for each why it was refused, None where it is durable.

        Raises:
            UnknownMember, StaleGeneration, GroupNotEmpty: nobody who may commit.
            OutcomeUnknown: ZooKeeper was lost on the way.

        """
        member = self._member(group, by)
        now_ms = self._context.clock.wall_ms()
        refusals: list[LeadlineError | None] = []
        accepted: dict[Partition, Committed] = {}
        for one in offsets:
            name = (one.topic, one.partition)
            try:
                self._check_exists(name)
                check_owned(member, name)
            except LeadlineError as refusal:
                self._context.metrics.commits.labels("refused").inc()
                refusals.append(refusal)
            else:
                accepted[name] = Committed(one.offset, now_ms, one.leader_epoch, one.metadata)
                refusals.append(None)
        if accepted:
            await (await self._desk_for_writing(group)).committer.commit(accepted)
        return refusals

    async def reset(
        self,
        group: str,
        to: ResetTo,
        partitions: Collection[Partition],
        *,
        timestamp: int | None = None,
        offsets: Mapping[Partition, int] | None = None,
        dry_run: bool = False,
    ) -> list[Reset]:
        """Set the offsets of a group without members; return what changes, in order.

        Without `partitions`, those that the group has committed offsets of.

        Raises:
            UnknownGroup: there is no such group, and nothing to set for a new one.
            GroupNotEmpty: it has members.
            UnknownTopic, UnknownPartition: there is no such partition.
            OffsetOutOfRange: an explicit offset is not in the log.
            LeaderNotAvailable: some leader does not say where its log begins and ends.

        """
        async with refusals_told(self._context, "reset_offsets", group):
            changes = await self._planned(group, to, partitions, timestamp, offsets or {})
            if dry_run:
                told = self._entry("reset_offsets", group, changes, outcome="dry_run")
                await tell(self._context, told)
            if dry_run or not changes:
                return changes
            desk = await self._desk_for_writing(group)
            _check_inactive(desk)  # somebody may have joined while the brokers were asked
            now_ms = self._context.clock.wall_ms()
            await desk.committer.commit(
                {(one.topic, one.partition): Committed(one.offset, now_ms) for one in changes},
                [self._entry("offsets_reset", group, changes)],
            )
        return changes

    async def _planned(
        self,
        group: str,
        to: ResetTo,
        partitions: Collection[Partition],
        timestamp: int | None,
        offsets: Mapping[Partition, int],
    ) -> list[Reset]:
        """Return what a reset changes.

        Raises:
            Refused: as `reset` does.

        """
        before = self._committed(group, is_new=bool(partitions or offsets))
        names = set(partitions or offsets or before)
        for name in names:
            self._check_exists(name)
        ends = await self._ends(names, timestamp)
        missing = sorted(names - ends.keys())
        if missing:
            topic, number = missing[0]
            raise LeaderNotAvailable(f"nobody says where {topic}-{number} begins and ends")
        wanted = {name: _target(name, to, ends[name], offsets) for name in sorted(names)}
        return [
            Reset(*name, before[name].offset if name in before else None, offset)
            for name, offset in wanted.items()
        ]

    def _entry(
        self, kind: str, group: str, changes: Sequence[Reset], outcome: str = "done"
    ) -> AuditEntry:
        previous = {(one.topic, one.partition): one.previous for one in changes}
        new: dict[Partition, int | None] = {(o.topic, o.partition): o.offset for o in changes}
        return entry_about(
            self._context,
            kind,
            group,
            outcome=outcome,
            before=offsets_by_topic(previous),
            after=offsets_by_topic(new),
        )

    async def lag(self, group: str) -> list[Lag]:
        """Return how far a group is behind, for what it has committed or owns, in order."""
        desk = self._coordinator.desk(group)
        owners, committed = desk.group.owners, desk.committer.offsets
        names = owners.keys() | committed.keys()
        ends = await self._ends(names, None)
        return [
            Lag(
                *name,
                committed=committed[name].offset if name in committed else None,
                end=ends[name].end if name in ends else None,
                member=owners.get(name),
            )
            for name in sorted(names)
        ]

    async def delete(self, group: str, topic: str | None = None) -> int:
        """Delete offsets of a group without members, of one topic or all; return how many.

        Raises:
            GroupNotEmpty: it has members.

        """

        def told(gone: Mapping[Partition, Committed]) -> AuditEntry:
            before = offsets_by_topic({name: one.offset for name, one in gone.items()})
            return entry_about(self._context, "offsets_deleted", group, before=before)

        async with refusals_told(self._context, "delete_offsets", group):
            desk = self._coordinator.desk(group)
            _check_inactive(desk)
            return await desk.committer.delete(lambda name: topic is None or name[0] == topic, told)

    async def _ends(
        self, partitions: Collection[Partition], timestamp: int | None
    ) -> Mapping[Partition, Ends]:
        if not partitions:
            return {}
        try:
            brokers = await self._context.store.brokers()
        except ZkError:
            return {}
        return await self._context.brokers.offsets(brokers, partitions, timestamp)

    def _member(self, group: str, by: Committer) -> Member | None:
        """Return the member that commits; None where no member is named, and the group has none."""
        if by.member is None and group not in self._coordinator.groups:
            return None
        state = self._coordinator.desk(group).group
        return committing_member(state, by.member, by.generation, by.coordinator_epoch)

    def _committed(self, group: str, *, is_new: bool) -> Mapping[Partition, Committed]:
        """Return what a group without members has committed; a new one has nothing."""
        if is_new and group not in self._coordinator.groups:
            return {}
        desk = self._coordinator.desk(group)
        _check_inactive(desk)
        return desk.committer.offsets

    async def _desk_for_writing(self, group: str) -> GroupManager:
        """Return the desk of a group, which may be made and recorded for offsets alone."""
        is_new = group not in self._coordinator.groups
        desk = self._coordinator.desk_or_new(group)
        if is_new:
            with told_to_callers():
                await desk.record_empty()
        return desk

    def _check_exists(self, name: Partition) -> None:
        topic, number = name
        count = self._coordinator.topics.counts.get(topic)
        if count is None:
            raise UnknownTopic(f"topic {topic!r} does not exist")
        if number >= count:
            raise UnknownPartition(f"topic {topic!r} has {count} partitions, not {number + 1}")


def _check_inactive(desk: GroupManager) -> None:
    if desk.group.is_active:
        count = len(desk.group.members)
        raise GroupNotEmpty(f"group {desk.group.name!r} has {count} members: stop them first")


def _target(name: Partition, to: ResetTo, ends: Ends, offsets: Mapping[Partition, int]) -> int:
    topic, number = name
    match to:
        case "earliest":
            return ends.start
        case "latest":
            return ends.end
        case "timestamp":
            return ends.end if ends.found is None else ends.found
        case "offsets":
            if name not in offsets:
                raise InvalidRequest(f"body.offsets: {topic}-{number} is missing")
            if not ends.start <= offsets[name] <= ends.end:
                raise OffsetOutOfRange(
                    f"{topic}-{number} goes from {ends.start} to {ends.end}, not {offsets[name]}"
                )
            return offsets[name]
