"""What ZooKeeper holds of groups: loading it, and writing what differs.

The coordinator is the only writer. So this module remembers what it wrote last, and sends
differences without reading first. After a write that failed, or whose outcome is unknown,
it reads the group again and recomputes the difference (rule R7).

Every write is a multi that checks the version of `/consumers/coordinator_epoch`, so that
the writes of an earlier coordinator fail (R16).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from leadline_client.wire import TopicPartition
from leadline_common import consumer_znodes as nodes
from leadline_common.audit_outbox import audit_op
from leadline_common.leader_election import LeadershipTerm, TermEnded
from leadline_common.unreadable import UNREADABLE
from leadline_common.zk.batches import batches_of
from leadline_common.zk.errors import BadVersion, MultiFailed, NotPermitted, ZkError
from leadline_common.zk.ops import ANY_VERSION, CheckOp, CreateOp, DeleteOp, Op, SetOp
from leadline_common.zk.session import ZkSession
from leadline_common.znodes import AuditEntry
from leadline_coordinator.adapters.group_reading import WrittenGroup, read_groups
from leadline_coordinator.adapters.group_values import (
    group_value,
    member_values,
    offset_value,
    owner_values,
)
from leadline_coordinator.domain.records import CommittedOffset, GroupRecord, StoredGroup

logger = structlog.get_logger(__name__)

_ATTEMPTS: Final = 3
_READ_AT_ONCE: Final = 250
"""Groups. All their nodes are in memory at the same time."""


class GroupNodes:
    """The groups below `/consumers/groups`, over one session; see `runtime.ports.GroupStore`.

    The audit entries that a method takes are written in the last of its multis, or after it if they
    do not fit there.
    """

    def __init__(self, session: ZkSession) -> None:
        self._session = session
        self._written: dict[str, WrittenGroup] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._unreadable: dict[str, str] = {}

    # -- reading ---------------------------------------------------------------

    @property
    def unreadable(self) -> Mapping[str, str]:
        """A node that may not be read, by group."""
        return self._unreadable

    async def load(self) -> list[StoredGroup]:
        """Read all groups, many at a time."""
        names = await self._session.get_children(nodes.GROUPS)
        groups = [nodes.name_of_node(name) for name in names]
        stored: list[StoredGroup] = []
        for start in range(0, len(groups), _READ_AT_ONCE):
            stored += await self._load_groups(groups[start : start + _READ_AT_ONCE])
        return stored

    async def load_again(self, group: str) -> StoredGroup | None:
        """Read a group that could not be read before; None if it still cannot, or is gone."""
        found = await self._load_groups([group])
        return found[0] if found else None

    async def _load_groups(self, groups: Sequence[str]) -> list[StoredGroup]:
        """Read groups, and remember their nodes."""
        found = await read_groups(self._session, groups)
        for group in groups:
            one = found.get(group)
            if one is not None and not one.forbidden:
                self._written[group] = one.written
            else:
                self._written.pop(group, None)
            self._note_unreadable(group, "" if one is None else one.forbidden)
        return [one.stored for one in found.values() if one.stored is not None]

    def _note_unreadable(self, group: str, path: str) -> None:
        before = self._unreadable.pop(group, None)
        if before is not None and before != path:
            UNREADABLE.discard(before)
        if path:
            self._unreadable[group] = path
            UNREADABLE.add(path, NotPermitted(path))

    # -- writing ---------------------------------------------------------------

    async def record(self, term: LeadershipTerm, record: GroupRecord) -> None:
        """Write what differs: first members, then owners, the group node last."""

        def differing(written: WrittenGroup) -> list[list[Op]]:
            members = member_values(record)
            ids = _differences(
                members, written.members, lambda name: nodes.member_path(record.name, name)
            )
            owners = owner_values(record.owners)
            last = _differences(
                owners, written.owners, lambda topic: nodes.topic_owners_path(record.name, topic)
            )
            value = group_value(record)
            if value != written.group:
                last.append(SetOp(nodes.group_path(record.name), value, ANY_VERSION))
            written.group, written.members, written.owners = value, members, owners
            # A partition's new owner is recorded after the old one has stopped, so any mixture of
            # old and new owners is valid: they need not be written at once.
            return [*batches_of(ids), *batches_of(last)]

        await self._apply(term, record.name, differing, group_value(record))

    async def write_offsets(
        self,
        term: LeadershipTerm,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset | None],
        audit: Sequence[AuditEntry] = (),
    ) -> None:
        """Write committed offsets, and delete those that are None.

        Creates the group's nodes if it has none, and deletes those of topics without offsets.
        """
        deleted = {one for one, committed in offsets.items() if committed is None}

        def writing(written: WrittenGroup) -> list[list[Op]]:
            ops: list[Op] = []
            for (topic, number), committed in offsets.items():
                if committed is not None:
                    ops += _offset_ops(group, topic, number, committed, written)
            for topic, number in sorted(deleted):
                if number in written.offsets.get(topic, ()):
                    ops.append(DeleteOp(nodes.offset_path(group, topic, number), ANY_VERSION))
                    written.offsets[topic].discard(number)
            for topic in sorted({topic for topic, _ in deleted} & written.offsets.keys()):
                if not written.offsets[topic]:
                    ops.append(DeleteOp(nodes.topic_offsets_path(group, topic), ANY_VERSION))
                    del written.offsets[topic]
            return [*batches_of(ops)]

        await self._apply(term, group, writing, audit=audit)

    async def delete_group(
        self, term: LeadershipTerm, group: str, audit: Sequence[AuditEntry] = ()
    ) -> None:
        """Delete a group with everything recorded about it; a group that is gone is no error.

        Nothing else may write to the group at the same time.
        """
        if group not in self._written and await self._is_gone(group):
            return

        def deleting(written: WrittenGroup) -> list[list[Op]]:
            paths = [nodes.member_path(group, name) for name in written.members]
            paths += [nodes.topic_owners_path(group, topic) for topic in written.owners]
            for topic, numbers in written.offsets.items():
                paths += [nodes.offset_path(group, topic, number) for number in numbers]
                paths.append(nodes.topic_offsets_path(group, topic))
            paths += [nodes.ids_path(group), nodes.owners_path(group), nodes.offsets_path(group)]
            paths.append(nodes.group_path(group))
            return [*batches_of([DeleteOp(path, ANY_VERSION) for path in paths])]

        await self._apply(term, group, deleting, audit=audit)
        self._written.pop(group, None)
        self._locks.pop(group, None)

    async def _is_gone(self, group: str) -> bool:
        """Look for a group whose deletion had an unknown outcome."""
        await self._load_groups([group])
        return group not in self._written

    async def write_audit(self, term: LeadershipTerm, entry: AuditEntry) -> None:
        """Write an audit entry alone."""
        await self._submit(term, [[audit_op(entry)]])

    async def _apply(
        self,
        term: LeadershipTerm,
        group: str,
        difference: Callable[[WrittenGroup], list[list[Op]]],
        value: bytes | None = None,
        audit: Sequence[AuditEntry] = (),
    ) -> None:
        """Submit the multis that make the difference, in order, each under the term's epoch.

        Raises:
            TermEnded: another coordinator has been elected; nothing was written.
            ZkError: something may be written.

        """
        earlier: MultiFailed | None = None
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                written = self._written.get(group)
                if written is None:
                    written = await self._read_or_create(term, group, value)
                await self._submit(term, _with_audit(difference(written), audit))
            except MultiFailed as failure:
                self._written.pop(group, None)
                if attempt == _ATTEMPTS or _is_fenced(failure):
                    raise
                logger.warning("a group was changed by others", group=group, reason=str(failure))
                earlier = failure
            except TermEnded:
                self._written.pop(group, None)
                if earlier is not None:  # of which a part may be written
                    raise earlier from None
                raise
            except ZkError:
                self._written.pop(group, None)
                raise
            else:
                return

    async def _submit(self, term: LeadershipTerm, multis: Sequence[Sequence[Op]]) -> None:
        """Submit multis in order, each under the term's epoch.

        Raises:
            TermEnded: another coordinator has been elected; nothing was written.
            MultiFailed: one was refused, also for that reason; others may be written.

        """
        check = CheckOp(nodes.COORDINATOR_EPOCH, term.epoch_version)
        pending = [self._session.submit_multi([check, *ops]) for ops in multis if ops]
        outcomes = await asyncio.gather(*pending, return_exceptions=True)
        if outcomes and _is_fenced(outcomes[0]):  # and so are the others: they came after it
            raise TermEnded("another coordinator has been elected")
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _read_or_create(
        self, term: LeadershipTerm, group: str, value: bytes | None
    ) -> WrittenGroup:
        """Read a group's nodes, or create them if there are none.

        Serialized for each group: what was read during another write may be out of date.
        """
        async with self._locks[group]:
            if group not in self._written:
                await self._load_groups([group])
            if group not in self._written:
                await self._create(term, group, value)
            return self._written[group]

    async def _create(self, term: LeadershipTerm, group: str, value: bytes | None) -> None:
        parents = (nodes.ids_path(group), nodes.owners_path(group), nodes.offsets_path(group))
        first = value or nodes.encode(nodes.GroupNode("range", "eager", 0))
        ops: list[Op] = [CreateOp(nodes.group_path(group), first), *map(CreateOp, parents)]
        await self._submit(term, [ops])
        self._written[group] = WrittenGroup(first)


def _is_fenced(outcome: object) -> bool:
    """Tell whether a multi was refused because another coordinator has been elected."""
    if not isinstance(outcome, MultiFailed):
        return False
    return outcome.index == 0 and isinstance(outcome.error, BadVersion)


def _with_audit(multis: Sequence[list[Op]], audit: Sequence[AuditEntry]) -> list[list[Op]]:
    """Add audit entries to the last multi; if they do not fit there, to its last operation."""
    *before, last = multis or [[]]
    entries = [audit_op(entry) for entry in audit]
    whole = list(batches_of([*last, *entries]))
    if len(whole) <= 1:
        return [*before, *whole]
    return [*before, last[:-1], *batches_of([*last[-1:], *entries])]


def _differences(
    wanted: Mapping[str, bytes], present: Mapping[str, bytes], path_of: Callable[[str], str]
) -> list[Op]:
    """Return the operations that change the children of a node from `present` to `wanted`."""
    ops: list[Op] = []
    for name, value in wanted.items():
        if name not in present:
            ops.append(CreateOp(path_of(name), value))
        elif present[name] != value:
            ops.append(SetOp(path_of(name), value, ANY_VERSION))
    ops += [DeleteOp(path_of(name), ANY_VERSION) for name in present if name not in wanted]
    return ops


def _offset_ops(
    group: str, topic: str, number: int, committed: CommittedOffset, written: WrittenGroup
) -> list[Op]:
    """Return the operations that write one committed offset, and remember its node."""
    ops: list[Op] = []
    if topic not in written.offsets:
        ops.append(CreateOp(nodes.topic_offsets_path(group, topic)))
        written.offsets[topic] = set()
    path, value = nodes.offset_path(group, topic, number), offset_value(committed)
    if number in written.offsets[topic]:
        return [*ops, SetOp(path, value, ANY_VERSION)]
    written.offsets[topic].add(number)
    return [*ops, CreateOp(path, value)]
