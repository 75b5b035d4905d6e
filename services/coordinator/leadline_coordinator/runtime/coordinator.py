"""One term of the active coordinator: all groups, their channels, and the rebalance queue.

The names are those of the Consumer Coordinator design: `coordinator_startup` loads
everything, the listeners request rebalances, `rebalance_request_queue` holds the names of
groups, and a task for each group in `groups_being_rebalanced` handles its requests. The
document has one thread for all groups; here a slow group does not delay the others.

However the term ends, `run` raises, all channels are closed, and the process takes part
in the next election without any of this state (`handleNewSession`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

import structlog

from leadline_client.channel import Hello
from leadline_client.errors import (
    NotCoordinator,
    RebalanceInProgress,
    StoreOutcomeUnknown,
    UnknownGroup,
)
from leadline_client.wire import TopicPartition
from leadline_common.cause import cause_scope, new_cause
from leadline_common.leader_election import TermEnded, watch_leadership
from leadline_common.slices import timed_turns
from leadline_common.tracing import spans
from leadline_common.zk.errors import ZkError
from leadline_coordinator.domain.commits import check_without_members, is_outdated
from leadline_coordinator.domain.group import Group
from leadline_coordinator.domain.membership import GroupMembership, restored
from leadline_coordinator.domain.records import CommittedOffset, StoredGroup
from leadline_coordinator.domain.subscriptions import (
    PollingTerms,
    TopicSubscriptionIndex,
    check_group_name,
)
from leadline_coordinator.runtime.committer import OffsetCommitter, WriteOutcome
from leadline_coordinator.runtime.context import CoordinatorContext, group_limits
from leadline_coordinator.runtime.group_checks import check_count, check_readable
from leadline_coordinator.runtime.group_manager import Channel, GroupManager
from leadline_coordinator.runtime.log_ends import LogEnds
from leadline_coordinator.runtime.topics import TopicListeners

logger = structlog.get_logger(__name__)

_TICK_S: Final = 0.05
_SETTLE_S: Final = 5.0
"""How long a deletion or a reset waits until former members have certainly stopped."""
_DELETION_UNKNOWN: Final = "this coordinator has lost leadership; read the groups before you retry"


class Coordinator:
    """The active coordinator. `ready` is set once every group is loaded."""

    def __init__(self, context: CoordinatorContext) -> None:
        self.context = context
        self.ready = asyncio.Event()
        self.groups: dict[str, GroupManager] = {}
        self.groups_being_rebalanced: set[str] = set()
        self._settled = asyncio.Event()
        """Set whenever a group was rebalanced, or the last of its former members has stopped."""
        self.rebalance_request_queue: asyncio.Queue[str] = asyncio.Queue()
        self.subscription_index = TopicSubscriptionIndex()
        self.topics = TopicListeners(context, self.on_topic_change, self._subscribed)
        self.log_ends = LogEnds(context)
        self._limits = group_limits(context.settings)
        self._handlers: set[asyncio.Task[None]] = set()
        self._failing: set[str] = set()
        """The groups whose last tick failed."""
        self._term_ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # -- the term --------------------------------------------------------------

    async def run(self) -> None:
        """Run until leadership is lost.

        Raises:
            TermEnded: the term has ended.

        """
        work = asyncio.create_task(self._work(), name="coordinator-queue")
        clock = asyncio.create_task(self._tick(), name="coordinator-clock")
        leading = asyncio.create_task(watch_leadership(self.context.store, self.context.term))
        lost = asyncio.create_task(self.context.store.lost.wait(), name="coordinator-session")
        ends = (work, clock, leading, lost, self._term_ended)
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for future in (self._term_ended, work, clock, leading):
                if future.done():
                    future.result()
            raise TermEnded("the ZooKeeper session is over")
        finally:
            self.ready.clear()
            lost.cancel()
            await self._close([work, clock, leading, *self._handlers])

    async def coordinator_startup(self) -> None:
        """Load topics and groups in turns, and check every group's assignment (steps 1 to 4)."""
        # Before it is `ready`, nobody joins or commits, topics stay as read, and rebalances wait.
        store, now_ms = self.context.store, self.context.clock.monotonic_ms
        store.on_reconnected(self.topics.invalidate)
        stored = await store.groups.load()
        async for some in timed_turns(stored, now_ms):
            for one in some:
                self.subscription_index.update(one.record.name, one.record.members.values())
        await self.topics.read()
        async for some in timed_turns(stored, now_ms):
            for one in some:
                self.restore(one)
        self.ready.set()
        logger.info("groups loaded", count=len(self.groups))

    async def _work(self) -> None:
        """Start a handler for every request in the queue."""
        try:
            await self.coordinator_startup()
            self._run_watched(self.topics.run(), "coordinator-topics")
            while True:
                name = await self.rebalance_request_queue.get()
                self._run_watched(self._handle(name), f"rebalance-{name}")
        except ZkError as end:
            raise TermEnded(f"ZooKeeper was lost: {end}") from end

    async def _tick(self) -> None:
        """Tick all groups; end the term once the session may have expired (R10)."""
        while True:
            if not self.context.store.lease_valid():
                raise TermEnded("the lease on the ZooKeeper session has run out")
            for manager in list(self.groups.values()):
                self._tick_group(manager)
            await asyncio.sleep(_TICK_S)

    def _tick_group(self, manager: GroupManager) -> None:
        """Tick one group; a fault in it leaves the other groups, and the term, alone."""
        if not manager.group.is_active:
            return
        try:
            manager.on_tick()
        except Exception:  # logged once: the next tick is likely to fail as well
            if manager.group.name not in self._failing:
                self._failing.add(manager.group.name)
                logger.exception("a group failed", group=manager.group.name)
            return
        self._failing.discard(manager.group.name)
        if not manager.group.is_active:
            self._settled.set()

    def _run_watched(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._handlers.add(task)
        task.add_done_callback(self._on_handler_done)
        return task

    def _on_handler_done(self, task: asyncio.Task[None]) -> None:
        """End the term if a handler failed: the next term starts from what is recorded."""
        self._handlers.discard(task)
        if task.cancelled() or task.exception() is None or self._term_ended.done():
            return
        problem = task.exception()
        if isinstance(problem, TermEnded | ZkError):
            self._term_ended.set_exception(TermEnded(str(problem)))
        else:
            logger.error("a handler failed", task=task.get_name(), exc_info=problem)
            self._term_ended.set_exception(TermEnded("a handler failed"))

    async def _close(self, tasks: Collection[asyncio.Task[None]]) -> None:
        if not self._term_ended.cancel():  # from now on no group is added, and none is deleted
            self._term_ended.exception()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._settled.set()  # whoever waits sees that the term has ended
        await self.log_ends.close()
        for manager in self.groups.values():
            manager.close()
            # The next coordinator shows it now.
            self.context.metrics.groups.lag.pop(manager.group.name, None)
            await manager.committer.close()

    # -- groups ----------------------------------------------------------------

    def manager(self, name: str) -> GroupManager:
        """Return the manager of a group.

        Raises:
            UnknownGroup: there is no such group.
            GroupUnreadable: it could not be loaded.

        """
        if name not in self.groups:
            check_readable(self.context, name)
            raise UnknownGroup(f"there is no group {name!r}")
        return self.groups[name]

    def manager_or_new(self, name: str) -> GroupManager:
        """Return the manager of a group, which is created if it does not exist.

        Raises:
            InvalidRequest: no group can have this name.
            GroupUnreadable: it could not be loaded.
            TooManyGroups: there are as many as allowed.
            NotCoordinator: another coordinator was elected.

        """
        if name not in self.groups:
            check_group_name(name)
            check_readable(self.context, name)
            self._check_term()
            check_count(self.context, len(self.groups))
            self.on_group_change(name)
        return self.groups[name]

    def open_channel(
        self, channel: Channel, hello: Hello, polling: PollingTerms | None = None
    ) -> None:
        """Let a consumer into the group of its channel; one that polls has `polling` terms.

        Raises:
            LeadlineError: the group refuses it.

        """
        name = channel.group
        is_new = name not in self.groups
        manager = self.manager_or_new(name)
        try:
            manager.on_hello(hello, channel, polling)
        except Exception:
            if is_new:
                del self.groups[name]
            raise

    async def delete(self, name: str, *, actor: str = "", reason: str = "") -> None:
        """Delete a group without members, with everything recorded about it.

        Until that is done nobody joins the group, and nothing is committed: the group that
        comes afterwards is another one. A deletion that has begun is finished, also if its
        outcome is unknown to the caller.

        Raises:
            UnknownGroup: there is no such group.
            GroupNotEmpty: it has members.
            RebalanceInProgress: it is being deleted, or former members may still be consuming.
            OutcomeUnknown: the connection to ZooKeeper was lost.
            NotCoordinator: another coordinator was elected.

        """
        manager = await self.without_members(name)
        manager.begin_deletion()
        outcome = WriteOutcome()
        deletion = self._finish_deletion(manager, outcome, actor=actor, reason=reason)
        task = self._run_watched(deletion, f"delete-{name}")
        # Not at the end of the coroutine: a task that is cancelled at once never enters it.
        task.add_done_callback(lambda _: outcome.end(StoreOutcomeUnknown(_DELETION_UNKNOWN)))
        await outcome.wait()

    async def without_members(self, name: str) -> GroupManager:
        """Return the manager of a group once nobody consumes its partitions, and that is recorded.

        Raises:
            UnknownGroup: there is no such group.
            GroupNotEmpty: it has members.
            RebalanceInProgress: former members may still be consuming after `_SETTLE_S`.
            NotCoordinator: another coordinator was elected.

        """
        give_up = asyncio.get_running_loop().time() + _SETTLE_S
        while True:
            self._check_term()
            try:
                return self._manager_without_members(name)
            except RebalanceInProgress:
                if asyncio.get_running_loop().time() >= give_up:
                    raise
            self._settled.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(give_up):
                    await self._settled.wait()

    def _manager_without_members(self, name: str) -> GroupManager:
        manager = self.manager(name)
        check_without_members(manager.group)
        if name in self.groups_being_rebalanced:
            raise RebalanceInProgress(f"group {name!r} is being recorded as empty: try again")
        return manager

    # -- listeners -------------------------------------------------------------

    def on_group_change(self, name: str) -> None:
        """Add a new group (the document's GroupChangeListener)."""
        committer = OffsetCommitter(self.context, name, {})
        epoch, counts = self.context.term.epoch, self.topics.counts
        group = Group(name, epoch, self._limits, counts, committer.offsets)
        self._add(group, committer)

    def on_group_member_change(self, name: str) -> bool:
        """Update what a group subscribes to (the document's GroupMemberChangeListener).

        Returns:
            Whether anything changed.

        """
        members = self.groups[name].group.members.values()
        subscriptions = (member.subscription for member in members)
        has_changed = self.subscription_index.update(name, subscriptions)
        if has_changed:
            self.topics.trigger()  # newly subscribed topics are not watched yet
        return has_changed

    def on_topic_change(self, topics: Collection[str], gone: Mapping[str, int]) -> None:
        """Request a rebalance of the groups that subscribe to changed topics.

        This is both TopicChangeListener and TopicPartitionChangeListener of the document.
        The offsets of a topic in `gone`, from that partition on, are no longer valid.
        """

        def is_invalid(one: TopicPartition, committed: CommittedOffset) -> bool:
            is_lost = one.topic in gone and one.partition >= gone[one.topic]
            return is_lost or self._is_outdated(one, committed)

        for topic in gone:
            self.log_ends.forget(topic)
        for each in self.groups.values():
            each.committer.drop(is_invalid, topics)
        groups_of = self.subscription_index.groups_of
        for name, topic in sorted((name, t) for t in topics for name in groups_of(t)):
            manager = self.groups.get(name)
            if manager is not None and manager.group.members:
                manager.group.note_added_again(gone)
                manager.group.request_rebalance(f"topic {topic} has changed")
                self.try_to_request_rebalance(name)

    def try_to_request_rebalance(self, name: str) -> None:
        """Queue a group unless it is queued or being rebalanced, which covers the request."""
        if name not in self.groups_being_rebalanced:
            self.groups_being_rebalanced.add(name)
            self.rebalance_request_queue.put_nowait(name)

    def _subscribed(self, topics: Iterable[str]) -> set[str]:
        return {topic for topic in topics if self.subscription_index.groups_of(topic)}

    # -- within ----------------------------------------------------------------

    async def _handle(self, name: str) -> None:
        """Handle a group's requests until none is left."""
        manager = self.groups.get(name)
        try:
            group = {"messaging.consumer.group.name": name}
            with cause_scope(new_cause()), spans.root_span("rebalance group", group):
                while manager is not None and manager.group.rebalance_requested:
                    self.on_group_member_change(name)
                    await manager.handle_rebalance_request()
                    if self.on_group_member_change(name):
                        # Earlier changes of the newly subscribed topics did not reach this group.
                        manager.group.request_rebalance("the members' subscriptions have changed")
        finally:
            self.groups_being_rebalanced.discard(name)
            self._settled.set()

    def _check_term(self) -> None:
        """Refuse what nobody would end: the term closes the groups and handlers that it has."""
        if self._term_ended.done():
            raise NotCoordinator("this coordinator has lost leadership")

    def restore(self, stored: StoredGroup) -> None:
        """Add a group as it is recorded."""
        record = stored.record
        committer = OffsetCommitter(self.context, record.name, stored.offsets)
        epoch, now_ms = self.context.term.epoch, self.context.clock.monotonic_ms()
        group = restored(record, epoch, self._limits, self.topics.counts, committer.offsets, now_ms)
        if not group.members and group.empty_since_wall_ms is None:
            group.empty_since_wall_ms = self.context.time.latest_ms()
        self._add(group, committer)
        committer.drop(self._is_outdated, committer.topics())
        self.groups[record.name].apply_effects()

    def _add(self, group: Group, committer: OffsetCommitter) -> None:
        group.topic_ids = self.topics.topic_ids
        members, request = GroupMembership(group), self.try_to_request_rebalance
        self.groups[group.name] = GroupManager(self.context, group, members, committer, request)

    async def _finish_deletion(
        self, manager: GroupManager, outcome: WriteOutcome, *, actor: str, reason: str
    ) -> None:
        name = manager.group.name
        await manager.delete(outcome, actor=actor, reason=reason)
        del self.groups[name]
        self.subscription_index.update(name, ())
        self.context.metrics.groups.lag.pop(name, None)
        outcome.end()

    def _is_outdated(self, one: TopicPartition, committed: CommittedOffset) -> bool:
        """Tell whether an offset is of a deleted partition, or of an earlier topic of its name."""
        topics = self.topics
        return one.topic not in topics.unreadable and is_outdated(topics.topics, one, committed)
