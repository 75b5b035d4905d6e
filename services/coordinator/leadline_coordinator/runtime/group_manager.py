"""The desk of one group: everything about it comes in here, and goes out from here.

One event loop, no `await` between a decision and its frames: so each group has one
writer. The rebalance procedure is carried out by one task of the group at a time (the
seed's request handler); what members do meanwhile goes straight to the state that the
procedure waits on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from leadline_client.channel import Hello, Pong, Started, Stop, Stopped
from leadline_common.zk.errors import ConnectionLoss
from leadline_coordinator.domain.assignors.assign import assign
from leadline_coordinator.domain.effects import Close, Removed, Send
from leadline_coordinator.domain.membership import Membership
from leadline_coordinator.domain.rebalance import (
    Answers,
    Assign,
    Pause,
    Rebalanced,
    Record,
    Step,
    handle_rebalance_request,
)
from leadline_coordinator.domain.records import GroupRecord, Partition
from leadline_coordinator.runtime.channels import Channel
from leadline_coordinator.runtime.committer import OffsetCommitter
from leadline_coordinator.runtime.context import CoordinatorContext

_log = logging.getLogger(__name__)

_LARGE: Final = 20_000
"""Members times topics, plus partitions, from which an assignment is computed in a thread."""
_RETRY_S: Final = 0.1
_MOST_OF_A_NAME: Final = 40
"""Characters of a consumer's own name in its member id: a topic's owners are in one znode."""


class GroupManager:
    """One group at work. `request` is told when it wants to be rebalanced."""

    def __init__(
        self,
        context: CoordinatorContext,
        members: Membership,
        committer: OffsetCommitter,
        request: Callable[[str], None],
    ) -> None:
        self.group = members.group
        self.members = members
        self.committer = committer
        self.rebalancing_since_ms: int | None = None
        """In Unix ms."""
        self._context = context
        self._request = request
        self._channels: dict[int, Channel] = {}
        self._answered = asyncio.Event()
        self._begun_ms = 0

    # -- what members do -------------------------------------------------------

    def on_hello(self, hello: Hello, channel: Channel) -> None:
        """Let a consumer in.

        Raises:
            LeadlineError: it cannot be let in; the channel is not the group's.

        """
        self._channels[channel.number] = channel
        try:
            self.members.on_hello(hello, channel.number, self._new_member_id(hello), self._now())
        except Exception:
            del self._channels[channel.number]
            raise
        self.carry_on()

    def on_answer(self, frame: Pong | Stopped | Started, channel: Channel) -> None:
        """Take in an answer."""
        self.members.on_answer(frame, channel.number, self._now())
        self.carry_on()

    def on_closed(self, channel: Channel) -> None:
        """Take in the end of a channel."""
        self._channels.pop(channel.number, None)
        self.members.on_closed(channel.number, self._now())
        self.carry_on()

    def on_tick(self) -> None:
        """Let time pass."""
        self.members.on_tick(self._now())
        self.carry_on()

    def carry_on(self) -> None:
        """Do what the group has left to be done, after anything that happened to it."""
        self._empty_outbox()
        if not self.group.awaited:
            self._answered.set()
        if self.group.wants_rebalance:
            self._request(self.group.name)

    def close(self) -> None:
        """End all channels."""
        for channel in self._channels.values():
            channel.end()

    def _new_member_id(self, hello: Hello) -> str:
        prefix = hello.instance_id or hello.client_id or "consumer"
        return f"{prefix[:_MOST_OF_A_NAME]}-{self._context.new_id()}"

    def _now(self) -> int:
        return self._context.clock.monotonic_ms()

    def _empty_outbox(self) -> None:
        outbox, self.group.outbox = self.group.outbox, []
        for effect in outbox:
            match effect:
                case Send(connection, frame):
                    if isinstance(frame, Stop):
                        parts = sum(len(numbers) for _, numbers in frame.partitions)
                        self._context.metrics.stops.inc(parts)
                    if connection in self._channels:
                        self._channels[connection].send(frame)
                case Close(connection):
                    channel = self._channels.pop(connection, None)
                    if channel is not None:
                        channel.end()
                case Removed(member, reason):
                    _log.info("group %r: %s is out: %s", self.group.name, member, reason)
                    if reason != "left":
                        self._context.metrics.evictions.labels(reason).inc()

    # -- rebalancing -----------------------------------------------------------

    async def handle_rebalance_request(self) -> None:
        """Carry out the procedure of `domain.rebalance`, step by step.

        Raises:
            TermEnded: another coordinator has been elected.
            SessionExpired: the session is over.

        """
        self.rebalancing_since_ms = self._context.clock.wall_ms()
        self._begun_ms = self._now()
        steps = handle_rebalance_request(self.group, self.members)
        reply: Any = None
        try:
            while True:
                step = steps.send(reply)
                self._empty_outbox()
                reply = await self._carry_out(step)
        except StopIteration:
            self._empty_outbox()
        finally:
            self.rebalancing_since_ms = None

    async def _carry_out(self, step: Step) -> Any:
        match step:
            case Assign():
                return await self._assign(step)
            case Record(record):
                await self._record(record)
            case Answers(within_ms):
                await self._await_answers(within_ms)
            case Pause(ms):
                await asyncio.sleep(ms / 1000)
            case Rebalanced(moved, complete):
                self._note(moved, complete=complete)
        return None

    async def _assign(self, step: Assign) -> Mapping[str, list[Partition]]:
        def compute() -> Mapping[str, list[Partition]]:
            return assign(
                step.assignor,
                step.topics,
                step.subscriptions,
                step.previous,
                threads=step.threads,
                instance_ids=step.instance_ids,
            ).assignment

        work = sum(step.topics.values()) + len(step.subscriptions) * max(1, len(step.topics))
        if work < _LARGE:
            return compute()
        return await asyncio.to_thread(compute)

    async def record_empty(self) -> None:
        """Record a group that nobody has joined: offsets are to be kept for it."""
        await self._record(self.group.record())

    async def _record(self, record: GroupRecord) -> None:
        await self.committer.flush()
        if not record.members:
            group = self.group
            group.empty_since_wall_ms = group.empty_since_wall_ms or self._context.clock.wall_ms()
            record = replace(record, empty_since_ms=group.empty_since_wall_ms)
        while True:
            try:
                await self._context.store.record(self._context.term, record)
            except ConnectionLoss:
                # Whether it was written is not known: written again it is the same (rule R7).
                await asyncio.sleep(_RETRY_S)
            else:
                return

    async def _await_answers(self, within_ms: int | None) -> None:
        timeout_s = None if within_ms is None else within_ms / 1000
        try:
            async with asyncio.timeout(timeout_s):
                while self.group.awaited:
                    self._answered.clear()
                    await self._answered.wait()
        except TimeoutError:
            return

    def _note(self, moved: int, *, complete: bool) -> None:
        metrics, now_ms = self._context.metrics, self._now()
        metrics.rebalances.labels("settled" if complete else "unanswered").inc()
        metrics.rebalance_seconds.observe((now_ms - self._begun_ms) / 1000)
        self._begun_ms = now_ms
        _log.info(
            "group %r: generation %d, %d partitions changed hands: %s",
            self.group.name,
            self.group.generation,
            moved,
            self.group.why,
        )
