"""The manager of one group: it applies events to the group, and executes what follows.

All events of a group arrive here, and all frames leave here. There is one event loop, and
no `await` between a decision and its frames, so each group has one writer. One task of
the group at a time runs the rebalance procedure (in the Consumer Coordinator design: the
request handler). What members do meanwhile changes the state that the procedure waits on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import structlog

from leadline_client.channel import FromCoordinator, Hello, Pong, Started, Stop, Stopped, encode
from leadline_client.errors import NotCoordinator, RebalanceInProgress, StoreOutcomeUnknown
from leadline_client.wire import TopicPartition
from leadline_common.leader_election import TermEnded
from leadline_common.zk.errors import (
    BadVersion,
    ConnectionLoss,
    MultiFailed,
    SessionExpired,
    ZkError,
)
from leadline_common.znodes import AuditEntry
from leadline_coordinator.domain.assignors.assign import assign, assignment_work
from leadline_coordinator.domain.effects import CloseMemberChannel, MemberRemoved, SendToMember
from leadline_coordinator.domain.group import Group
from leadline_coordinator.domain.members import GroupMember
from leadline_coordinator.domain.membership import GroupMembership
from leadline_coordinator.domain.rebalance import (
    AwaitAnswers,
    ComputeAssignment,
    JoinDelay,
    Rebalanced,
    RebalanceStep,
    WriteRecord,
    handle_rebalance_request,
)
from leadline_coordinator.domain.records import GroupRecord
from leadline_coordinator.domain.subscriptions import PollingTerms
from leadline_coordinator.runtime.audit import group_entry, offsets_by_topic
from leadline_coordinator.runtime.committer import (
    OffsetCommitter,
    WriteOutcome,
    translated_store_errors,
)
from leadline_coordinator.runtime.context import CoordinatorContext

logger = structlog.get_logger(__name__)

_LARGE: Final = 2_000
"""The steps, of about 5 µs, from which an assignment is computed in a thread."""
_RETRY_S: Final = 0.1
_REFUSED_RETRY_S: Final = 1.0
_MAX_PREFIX: Final = 40
"""Bytes of a consumer's own name in its member id: a topic's owners share one znode."""
_MAX_QUEUED: Final = 256


@dataclass(slots=True, eq=False)
class Channel:
    """The sending end of one connection: `outgoing` yields messages to send, then None.

    Frames are queued here and sent elsewhere, so that a slow consumer does not delay
    others. If its queue grows too long, the channel is closed as if it had been lost.
    """

    group: str
    number: int
    outgoing: asyncio.Queue[str | None] = field(default_factory=asyncio.Queue)
    _ended: bool = False

    def send(self, frame: FromCoordinator) -> None:
        """Queue a frame."""
        if self._ended:
            return
        if self.outgoing.qsize() >= _MAX_QUEUED:
            self.end()
        else:
            self.outgoing.put_nowait(encode(frame))

    def end(self) -> None:
        """Close the connection once everything queued is sent."""
        if not self._ended:
            self._ended = True
            self.outgoing.put_nowait(None)


@dataclass(eq=False)
class GroupManager:
    """Runs one group. It calls `request_rebalance` with the group's name if one is requested."""

    _context: CoordinatorContext
    group: Group
    members: GroupMembership
    committer: OffsetCommitter
    _request_rebalance: Callable[[str], None]
    rebalancing_since_ms: int | None = None
    """In Unix ms."""
    is_being_deleted: bool = False
    _channels: dict[int, Channel] = field(default_factory=dict)
    _answered: asyncio.Event = field(default_factory=asyncio.Event)
    _begun_ms: int = 0
    _recording: asyncio.Lock = field(default_factory=asyncio.Lock)

    # -- events of members -----------------------------------------------------

    def on_hello(self, hello: Hello, channel: Channel, polling: PollingTerms | None = None) -> None:
        """Let a consumer in; one that polls over HTTP has `polling` terms.

        Raises:
            LeadlineError: the group refuses it; the channel is not the group's.

        """
        self.check_exists()
        self._channels[channel.number] = channel
        try:
            with self._context.metrics.refused_secrets_counted("hello"):
                self.members.on_hello(
                    hello,
                    channel.number,
                    self._new_member_id(hello),
                    self._now(),
                    new_secret=self._context.new_secret(),
                    polling=polling,
                )
        except Exception:
            del self._channels[channel.number]
            raise
        self.apply_effects()

    def on_return(self, member: GroupMember, channel: Channel, generation: int) -> None:
        """Give a member that polls a new session."""
        self._channels[channel.number] = channel
        self.members.on_return(member, channel.number, generation, self._now())
        self.apply_effects()

    def channel_of(self, connection: int) -> Channel | None:
        """Return the channel of this number, if it is open."""
        return self._channels.get(connection)

    def on_answer(self, frame: Pong | Stopped | Started, channel: Channel) -> None:
        """Apply an answer."""
        self.members.on_answer(frame, channel.number, self._now())
        self.apply_effects()

    def on_closed(self, channel: Channel) -> None:
        """Apply the end of a channel."""
        self._channels.pop(channel.number, None)
        self.members.on_closed(channel.number, self._now())
        self.apply_effects()

    def on_tick(self) -> None:
        """Apply the passing of time."""
        self.members.on_tick(self._now())
        self.apply_effects()

    def apply_effects(self) -> None:
        """Do what follows from an event: send frames, wake the rebalance, or request one."""
        self._execute_effects()
        if not self.group.awaited:
            self._answered.set()
        if self.group.rebalance_requested:
            self._request_rebalance(self.group.name)

    def close(self) -> None:
        """End all channels, and the polls that wait for something to tell."""
        while self._channels:
            _, channel = self._channels.popitem()
            channel.end()

    def _new_member_id(self, hello: Hello) -> str:
        name = hello.instance_id or hello.client_id or "consumer"
        prefix = name.encode()[:_MAX_PREFIX].decode(errors="ignore")
        return f"{prefix}-{self._context.new_id()}"

    def _now(self) -> int:
        return self._context.clock.monotonic_ms()

    def _execute_effects(self) -> None:
        effects, self.group.effects = self.group.effects, []
        for effect in effects:
            match effect:
                case SendToMember(connection, frame):
                    if isinstance(frame, Stop):
                        count = sum(len(numbers) for _, numbers in frame.partitions)
                        self._context.metrics.stops.inc(count)
                    if connection in self._channels:
                        self._channels[connection].send(frame)
                case CloseMemberChannel(connection):
                    channel = self._channels.pop(connection, None)
                    if channel is not None:
                        channel.end()
                case MemberRemoved(member, reason):
                    logger.info(
                        "member removed", group=self.group.name, member=member, reason=reason
                    )
                    if reason != "left":
                        self._context.metrics.evictions.labels(reason).inc()

    # -- rebalancing -----------------------------------------------------------

    async def handle_rebalance_request(self) -> None:
        """Run the procedure of `domain.rebalance`, step by step.

        Raises:
            TermEnded, MultiFailed: another coordinator has been elected.
            SessionExpired: the session is over.

        """
        self.rebalancing_since_ms = self._context.clock.wall_ms()
        self._begun_ms = self._now()
        steps = handle_rebalance_request(self.group, self.members)
        reply: Any = None
        try:
            while True:
                step = steps.send(reply)
                self._execute_effects()
                reply = await self._execute(step)
        except StopIteration:
            self._execute_effects()
        finally:
            self.rebalancing_since_ms = None

    async def _execute(self, step: RebalanceStep) -> Any:
        match step:
            case ComputeAssignment():
                return await self._compute(step)
            case WriteRecord(record):
                await self._record_until_accepted(record)
            case AwaitAnswers(within_ms):
                await self._await_answers(within_ms)
            case JoinDelay(ms):
                await asyncio.sleep(ms / 1000)
            case Rebalanced(moved, complete):
                self._on_rebalanced(moved, complete=complete)
        return None

    async def _compute(self, step: ComputeAssignment) -> Mapping[str, list[TopicPartition]]:
        def compute() -> Mapping[str, list[TopicPartition]]:
            return assign(
                step.assignor,
                step.topics,
                step.subscriptions,
                step.previous,
                threads=step.threads,
                topic_threads=step.topic_threads,
                instance_ids=step.instance_ids,
            ).assignment

        work = assignment_work(
            step.assignor, step.topics, step.subscriptions, step.threads, step.topic_threads
        )
        if work < _LARGE:
            return compute()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._context.computing, compute)

    async def record(self, record: GroupRecord) -> None:
        """Write all commits accepted so far, then the record of the group.

        Raises:
            RebalanceInProgress: the group is being deleted.

        """
        async with self._recording:
            self.check_exists()
            await self.committer.flush()
            if not record.members:
                group, now_ms = self.group, self._context.time.latest_ms()
                group.empty_since_wall_ms = group.empty_since_wall_ms or now_ms
                record = replace(record, empty_since_ms=group.empty_since_wall_ms)
            while True:
                with suppress(ConnectionLoss):
                    await self._context.store.groups.record(self._context.term, record)
                    return
                # The outcome is unknown, and writing the same again is harmless (rule R7).
                await asyncio.sleep(_RETRY_S)

    async def _record_until_accepted(self, record: GroupRecord) -> None:
        """Write a record; if ZooKeeper refuses it, only this group waits for an operator.

        Its ACL may not allow it, or somebody has created nodes where it would delete theirs. The
        end of the term would interrupt all groups, and the next coordinator would be refused, too.

        Raises:
            TermEnded, MultiFailed: another coordinator has been elected.
            SessionExpired: the session is over.

        """
        error, refused = self.group.last_error, ""
        while True:
            try:
                await self.record(record)
            except SessionExpired:
                raise
            except ZkError as refusal:
                if isinstance(refusal, MultiFailed) and isinstance(refusal.error, BadVersion):
                    raise  # of the coordinator epoch: no other version is checked
                reason = f"the group cannot be recorded: {refusal}"
                if reason != refused:
                    logger.error("a group is refused", group=self.group.name, reason=reason)
                self.group.last_error = refused = reason
                await asyncio.sleep(_REFUSED_RETRY_S)
            else:
                self.group.last_error = error
                return

    async def _await_answers(self, within_ms: int | None) -> None:
        timeout_s = None if within_ms is None else within_ms / 1000
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.group.awaited:
                    self._answered.clear()
                    await self._answered.wait()

    def _on_rebalanced(self, moved: int, *, complete: bool) -> None:
        metrics, now_ms = self._context.metrics, self._now()
        metrics.rebalances.labels("settled" if complete else "unanswered").inc()
        metrics.rebalance_seconds.observe((now_ms - self._begun_ms) / 1000)
        self._begun_ms = now_ms
        logger.info(
            "group rebalanced",
            group=self.group.name,
            generation=self.group.generation,
            moved=moved,
            reason=self.group.rebalance_reason,
        )

    # -- deletion --------------------------------------------------------------

    def check_exists(self) -> None:
        """Refuse what would join, commit to, or change a group that is being deleted.

        Raises:
            RebalanceInProgress: it is.

        """
        if self.is_being_deleted:
            raise RebalanceInProgress(f"group {self.group.name!r} is being deleted: try again")

    def begin_deletion(self) -> None:
        """Accept no members and no commits from now on; the group must have no members.

        Raises:
            RebalanceInProgress: the group is being deleted already.

        """
        self.check_exists()
        self.is_being_deleted = True

    async def delete(self, outcome: WriteOutcome, *, actor: str, reason: str) -> None:
        """Delete what is recorded, after all writes that were accepted before.

        A failed attempt ends `outcome`, and is repeated: nothing less may be left in ZooKeeper
        than in memory, and the other way around.

        Raises:
            TermEnded: another coordinator has been elected.

        """
        async with self._recording:
            await self.committer.flush()
            await self.committer.close()
            entry = self._deletion_entry(actor, reason)
            while True:
                try:
                    with translated_store_errors(self._context):
                        groups = self._context.store.groups
                        await groups.delete_group(self._context.term, self.group.name, [entry])
                except NotCoordinator as error:
                    outcome.end(error)
                    raise TermEnded(error.message) from error
                except StoreOutcomeUnknown as error:
                    outcome.end(error)
                    await asyncio.sleep(_RETRY_S)
                else:
                    return

    def _deletion_entry(self, actor: str, reason: str) -> AuditEntry:
        offsets = {one: committed.offset for one, committed in self.committer.offsets.items()}
        return group_entry(
            self._context,
            "group_deleted",
            self.group.name,
            actor=actor,
            reason=reason,
            before=offsets_by_topic(offsets),
        )
