"""One term of the coordinator: all groups, their channels, the rebalance queue (seed 3).

The names are the seed's: `coordinator_startup` loads everything, the listeners ask for
rebalances, `rebalance_request_queue` carries the names of groups, and a handler task
for each group under `groups_being_rebalanced` carries them out. Where the seed has one
thread for all groups, a slow group here holds up no other.

When the term ends, by whatever way, `run` raises, channels are ended, and the process
stands for office again with nothing of this.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from leadline_client.channel import Hello
from leadline_client.errors import LeadlineError, UnknownGroup
from leadline_common.cause import cause_scope, new_cause
from leadline_common.leader_election import TermEnded
from leadline_common.zk.errors import ZkError
from leadline_coordinator.domain.group import Group
from leadline_coordinator.domain.members import Limits
from leadline_coordinator.domain.membership import Membership, restored
from leadline_coordinator.domain.records import Partition, StoredGroup
from leadline_coordinator.domain.subscribing import check_group_name
from leadline_coordinator.domain.topic_index import TopicSubscriptionIndex
from leadline_coordinator.runtime.audit import OPERATOR, entry_about, offsets_by_topic
from leadline_coordinator.runtime.channels import Channel
from leadline_coordinator.runtime.committer import OffsetCommitter, told_to_callers
from leadline_coordinator.runtime.context import CoordinatorContext
from leadline_coordinator.runtime.group_manager import GroupManager
from leadline_coordinator.runtime.topics import TopicListeners

_log = logging.getLogger(__name__)

_TICK_S: Final = 0.05


class Coordinator:
    """The active coordinator. `ready` is set once every group is loaded."""

    def __init__(self, context: CoordinatorContext) -> None:
        self.context = context
        self.ready = asyncio.Event()
        self.groups: dict[str, GroupManager] = {}
        self.groups_being_rebalanced: set[str] = set()
        self.rebalance_request_queue: asyncio.Queue[str] = asyncio.Queue()
        self.interest = TopicSubscriptionIndex()
        self.topics = TopicListeners(context, self.on_topic_change, self._interesting)
        self._limits = limits_of(context)
        self._handlers: set[asyncio.Task[None]] = set()
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # -- the term --------------------------------------------------------------

    async def run(self) -> None:
        """Serve until deposed.

        Raises:
            TermEnded: the term is over.

        """
        work = asyncio.create_task(self._work(), name="coordinator-queue")
        clock = asyncio.create_task(self._tick(), name="coordinator-clock")
        lost = asyncio.create_task(self.context.store.lost.wait(), name="coordinator-session")
        try:
            await asyncio.wait((work, clock, lost, self._over), return_when=asyncio.FIRST_COMPLETED)
            for future in (self._over, work, clock):
                if future.done():
                    future.result()
            raise TermEnded("the ZooKeeper session is over")
        finally:
            self.ready.clear()
            lost.cancel()
            await self._close([work, clock, *self._handlers])

    async def coordinator_startup(self) -> None:
        """Load topics and groups, and have every group looked at (the seed's steps 1-4)."""
        store = self.context.store
        store.on_reconnected(self.topics.look_again)
        stored = await store.load_groups()
        for one in stored:
            self.interest.update(one.record.name, one.record.members.values())
        await self.topics.read()
        for one in stored:
            self._adopt(one)
        for desk in self.groups.values():
            await self._drop_offsets_of_other_topics(desk, stored)
            desk.carry_on()
        self.ready.set()
        _log.info("%d groups are loaded", len(self.groups))

    async def _work(self) -> None:
        """Hand every request of the queue to the handler of its group."""
        try:
            await self.coordinator_startup()
            topics = asyncio.create_task(self.topics.run(), name="coordinator-topics")
            self._watch(topics)
            while True:
                name = await self.rebalance_request_queue.get()
                handler = asyncio.create_task(self._handle(name), name=f"rebalance-{name}")
                self._watch(handler)
        except ZkError as end:
            raise TermEnded(f"ZooKeeper was lost: {end}") from end

    async def _tick(self) -> None:
        """Let time pass for all groups; resign once the session may have expired (R10)."""
        while True:
            if not self.context.store.lease_valid():
                raise TermEnded("the lease on the ZooKeeper session has run out")
            for desk in list(self.groups.values()):
                if desk.group.is_active:
                    desk.on_tick()
            await asyncio.sleep(_TICK_S)

    def _watch(self, task: asyncio.Task[None]) -> None:
        self._handlers.add(task)
        task.add_done_callback(self._on_handler_done)

    def _on_handler_done(self, task: asyncio.Task[None]) -> None:
        """End the term where a handler could not go on: a successor starts from what is written."""
        self._handlers.discard(task)
        if task.cancelled() or task.exception() is None or self._over.done():
            return
        problem = task.exception()
        if isinstance(problem, TermEnded | ZkError):
            self._over.set_exception(TermEnded(str(problem)))
        else:
            _log.error("%s failed", task.get_name(), exc_info=problem)
            self._over.set_exception(TermEnded("a handler failed"))

    async def _close(self, tasks: Collection[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if not self._over.cancel():
            self._over.exception()
        for desk in self.groups.values():
            desk.close()
            self.context.metrics.forget(desk.group.name)  # a successor shows it from now on
            await desk.committer.close()

    # -- groups ----------------------------------------------------------------

    def desk(self, name: str) -> GroupManager:
        """Return the desk of a group.

        Raises:
            UnknownGroup: there is no such group.

        """
        found = self.groups.get(name)
        if found is None:
            raise UnknownGroup(f"there is no group {name!r}")
        return found

    def desk_or_new(self, name: str) -> GroupManager:
        """Return the desk of a group, which is made when it is first asked for.

        Raises:
            InvalidRequest: no group can have this name.

        """
        found = self.groups.get(name)
        if found is not None:
            return found
        check_group_name(name)
        return self.on_group_change(name)

    def open_channel(self, channel: Channel, hello: Hello) -> None:
        """Let a consumer into the group of its channel.

        Raises:
            LeadlineError: it cannot be let in.

        """
        name = channel.group
        is_new = name not in self.groups
        desk = self.desk_or_new(name)
        try:
            desk.on_hello(hello, channel)
        except Exception:
            if is_new:
                del self.groups[name]
            raise

    async def delete(self, name: str, *, actor: str = OPERATOR, reason: str = "") -> None:
        """Delete a group without members, with all that is recorded of it.

        Raises:
            UnknownGroup: there is no such group.
            OutcomeUnknown: ZooKeeper was lost on the way.
            NotCoordinator: this process was succeeded; nothing was deleted.

        """
        desk = self.desk(name)
        await desk.committer.flush()
        had = {one: offset.offset for one, offset in desk.committer.offsets.items()}
        told = entry_about(
            self.context,
            "group_deleted",
            name,
            actor=actor,
            reason=reason,
            before=offsets_by_topic(had),
        )
        with told_to_callers():
            await self.context.store.delete_group(self.context.term, name, [told])
        if self.groups.get(name) is desk and not desk.group.is_active:
            del self.groups[name]
            self.interest.update(name, ())
            self.context.metrics.forget(name)

    # -- listeners -------------------------------------------------------------

    def on_group_change(self, name: str) -> GroupManager:
        """Begin with a group that was not known (the seed's GroupChangeListener)."""
        committer = OffsetCommitter(self.context, name, {}, self.topics.ids)
        group = Group(
            name, self.context.term.epoch, self._limits, self.topics.counts, committer.offsets
        )
        return self._add(group, committer)

    def on_group_member_change(self, name: str) -> bool:
        """Look what the members of a group are interested in (GroupMemberChangeListener).

        Returns:
            Whether it is anything else than before.

        """
        members = self.groups[name].group.members.values()
        is_other = self.interest.update(name, (member.subscription for member in members))
        if is_other:
            self.topics.hint()  # what is of interest only now is not watched yet
        self.context.metrics.group_members.labels(name).set(len(members))
        return is_other

    def on_topic_change(self, topics: Collection[str], gone: Mapping[str, int]) -> None:
        """Ask for a rebalance of the groups that changed topics concern.

        Both the seed's TopicChangeListener and its TopicPartitionChangeListener. Of a
        topic in `gone` the offsets from that partition on mean nothing any more.
        """
        if gone and self.ready.is_set():
            self._watch(asyncio.create_task(self._drop_offsets(gone), name="drop-offsets"))
        concerned = {(name, topic) for topic in topics for name in self.interest.concerned(topic)}
        for name, topic in sorted(concerned):
            desk = self.groups.get(name)
            if desk is not None and desk.group.members:
                desk.group.request_rebalance(f"topic {topic} has changed")
                self.try_to_request_rebalance(name)

    def try_to_request_rebalance(self, name: str) -> None:
        """Queue a group unless it is queued or being rebalanced: that one will see to it."""
        if name not in self.groups_being_rebalanced:
            self.groups_being_rebalanced.add(name)
            self.rebalance_request_queue.put_nowait(name)

    def _interesting(self, topics: Iterable[str]) -> set[str]:
        return {topic for topic in topics if self.interest.concerned(topic)}

    # -- within ----------------------------------------------------------------

    async def _handle(self, name: str) -> None:
        """Carry out a group's requests until none is left."""
        desk = self.groups.get(name)
        try:
            with cause_scope(new_cause()):
                while desk is not None and desk.group.wants_rebalance:
                    self.on_group_member_change(name)
                    await desk.handle_rebalance_request()
                    if self.on_group_member_change(name):
                        # Changes of what is of interest only now were not told to this group.
                        desk.group.request_rebalance("the members ask for something else")
        finally:
            self.groups_being_rebalanced.discard(name)

    def _adopt(self, stored: StoredGroup) -> None:
        record = stored.record
        committer = OffsetCommitter(self.context, record.name, stored.offsets, self.topics.ids)
        group = restored(
            record,
            self.context.term.epoch,
            self._limits,
            self.topics.counts,
            committer.offsets,
            self.context.clock.monotonic_ms(),
        )
        if not group.members and group.empty_since_wall_ms is None:
            group.empty_since_wall_ms = self.context.clock.wall_ms()
        self._add(group, committer)

    def _add(self, group: Group, committer: OffsetCommitter) -> GroupManager:
        desk = GroupManager(
            self.context, Membership(group), committer, self.try_to_request_rebalance
        )
        self.groups[group.name] = desk
        return desk

    async def _drop_offsets(self, topics: Mapping[str, int]) -> None:
        """Delete the offsets of what was deleted; what is left over a successor deletes."""

        def is_gone(partition: Partition) -> bool:
            topic, number = partition
            return topic in topics and number >= topics[topic]

        for desk in list(self.groups.values()):
            try:
                await desk.committer.delete(is_gone)
            except LeadlineError as problem:
                _log.warning("offsets of group %r are left: %s", desk.group.name, problem)

    async def _drop_offsets_of_other_topics(
        self, desk: GroupManager, stored: Iterable[StoredGroup]
    ) -> None:
        """Delete offsets of what was deleted, or made anew, while nobody looked."""
        ids, counts = self.topics.ids(), self.topics.counts
        known: Mapping[str, str] = next(
            one.topic_ids for one in stored if one.record.name == desk.group.name
        )

        def is_gone(partition: Partition) -> bool:
            topic, number = partition
            is_another = known.get(topic) not in ("", ids.get(topic))
            return is_another or number >= counts.get(topic, number + 1)

        await desk.committer.delete(is_gone)


def limits_of(context: CoordinatorContext) -> Limits:
    """Return the limits of all groups from the settings."""
    settings = context.settings
    return Limits(
        ping_interval_ms=settings.group_ping_interval_ms,
        stop_limit_ms=settings.group_stop_limit_ms,
        evict_limit_ms=settings.group_evict_limit_ms,
        reconnect_grace_ms=settings.group_reconnect_grace_ms,
        static_grace_ms=settings.group_static_grace_ms,
        initial_delay_ms=settings.group_initial_rebalance_delay_ms,
        answer_timeout_ms=settings.rebalance_answer_timeout_ms,
        max_size=settings.group_max_size,
        max_retries=settings.max_rebalance_retries,
    )
