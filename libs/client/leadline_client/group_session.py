"""The life cycle of a group member: find the coordinator, open a channel, answer its frames.

When the channel breaks, the cycle starts again. `MembershipManager` makes all decisions; this
module gives it a clock, a socket and a task.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from importlib import import_module
from typing import Final, Protocol, TypeAlias

from leadline_client.channel import Frame, FromConsumer
from leadline_client.client import AsyncClient
from leadline_client.errors import (
    AllKnownBrokersNotAvailable,
    LeadlineError,
    NotCoordinator,
    OutcomeUnknown,
)
from leadline_client.groups import GroupMetadata, coordinator_address, leave_group
from leadline_client.membership import (
    AssignPartitions,
    CloseChannel,
    ConsumerSubscription,
    Effect,
    FailConsumer,
    LosePartitions,
    MembershipManager,
    RevokePartitions,
    SendFrame,
    Warn,
)
from leadline_client.security import Authenticator
from leadline_client.transport import no_connection
from leadline_client.wire import TopicPartition

_logger = logging.getLogger(__name__)

Clock: TypeAlias = Callable[[], float]

_LEAVE_WITHIN_S: Final = 3.0
_FIND_AGAIN_S: Final = 1.0
"""How long a coordinator may take to open a channel before brokers are asked for it again."""


class FrameChannel(Protocol):
    """An open channel to the coordinator; see `websocket.WebSocketChannel`."""

    async def send(self, frame: FromConsumer) -> None:
        """Send a frame; raises ConnectionLost."""

    async def receive(self) -> Frame:
        """Return the next frame; raises ConnectionLost, or InvalidRequest for an invalid frame."""

    async def close(self) -> None:
        """Close the channel; raises nothing."""


def _open_channel(
    address: str, group: str, authenticator: Authenticator
) -> Awaitable[FrameChannel]:
    """Open a channel. The WebSocket library is an extra, which a consumer without group lacks.

    Raises:
        Unreachable: no descriptor is free for the library's files.

    """
    try:
        library = import_module("leadline_client.websocket")
    except OSError as problem:  # Any other error ends the consumer; this one may be over soon.
        raise no_connection(f"the channel to {address}", problem) from problem
    opening: Awaitable[FrameChannel] = library.open_channel(address, group, authenticator)
    return opening


class SessionListener(Protocol):
    """The consumer behind a session. All calls come from the event loop, and none may block."""

    def on_revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Stop consuming these partitions soon, and then call `GroupSession.confirm_revoked`."""

    def on_lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Stop consuming these partitions at once: another member may own them."""

    def on_assigned(self, assigned: AssignPartitions) -> None:
        """Consume the partitions that were added."""

    def on_change(self) -> None:
        """Check again whether records may be consumed."""


class GroupSession:
    """One consumer's membership, in a task that runs until `leave` or a fatal `error`.

    `clock` counts seconds (monotonic), also while this process is stopped: the lease
    of a stopped process must run out.
    """

    def __init__(
        self,
        client: AsyncClient,
        group: str,
        subscription: ConsumerSubscription,
        listener: SessionListener,
        *,
        clock: Clock,
    ) -> None:
        self.error: Exception | None = None
        self._client = client
        self._group = group
        self._listener = listener
        self._clock = clock
        self._membership = MembershipManager(subscription)
        self._outbox: asyncio.Queue[FromConsumer] = asyncio.Queue()
        self._channel: FrameChannel | None = None
        self._closing = False
        self._leaving = False
        self._failures = 0
        self._changed = asyncio.Condition()
        self._task = asyncio.create_task(self._run(), name=f"group {group}")

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that this member owns, or claims while its channel is closed."""
        return self._membership.owned

    @property
    def group_metadata(self) -> GroupMetadata | None:
        """What a commit states about its member; None while the consumer is not a member."""
        membership = self._membership
        member, epoch = membership.member, membership.coordinator_epoch
        if member is None or epoch is None or membership.generation is None:
            return None
        return GroupMetadata(member, epoch, membership.generation, membership.secret)

    @property
    def answer_within_s(self) -> float:
        """How many seconds are left to answer a Stop or, without one, any frame."""
        return self._wait_limit_s() or 0.0

    def may_consume(self) -> bool:
        """Tell whether the application may get records now."""
        return self._membership.may_consume(self._clock())

    def confirm_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Report that the application has stopped consuming these and committed their offsets."""
        self._apply(self._membership.on_revoked(partitions, self._clock()))

    async def resubscribe(self, subscription: ConsumerSubscription) -> None:
        """Change the subscription; the consumer rejoins as the same member."""
        self._membership.subscription = subscription
        if self._channel is not None:
            await self._channel.close()

    async def until_settled(self, timeout_s: float) -> bool:
        """Wait for a Start; tell whether one came in time, before a Stop or `stop_waiting`."""
        membership = self._membership
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                # A Stop ends the wait: its answer may depend on the caller, and the next Start
                # comes only after that answer.
                await self._changed.wait_for(
                    lambda: membership.settled or membership.stopping or self._leaving or self.error
                )
        except TimeoutError:
            return False
        return membership.settled

    async def stop_waiting(self) -> None:
        """Let nobody wait for a Start any more, because the member is going to leave."""
        self._leaving = True
        async with self._changed:
            self._changed.notify_all()

    async def leave(self, *, quietly: bool) -> None:
        """End the membership; `quietly`: do not tell the coordinator, as the member will return."""
        member, secret = self._membership.member, self._membership.secret
        if member is not None and not quietly and self.error is None:
            flow = leave_group(
                self._client.core, self._group, member, secret, timeout_s=_LEAVE_WITHIN_S
            )
            # If it fails, the coordinator notices the closed socket or the end of the lease.
            with suppress(LeadlineError):
                await self._client.run(flow)
        self.end()
        await asyncio.wait([self._task])

    def end(self) -> None:
        """Answer no frame any more, and close the channel soon."""
        self._task.cancel()

    async def _run(self) -> None:
        try:
            while self.error is None:
                asked_s = await self._attempt()
                await self._notify()
                policy = self._client.core.policy
                await asyncio.sleep(policy.pause_s(self._failures, random.random(), asked_s))
        except Exception as error:
            # Nothing awaits this task, so the application must get any error from `error`.
            self.error = error
        self._apply(self._membership.end())
        await self._notify()

    async def _attempt(self) -> float:
        """Open a channel and answer frames until it closes; return how long to wait, in seconds.

        That is what the coordinator asks for, within the time that a call may take.
        """
        asked_s = 0.0
        try:
            await self._use(await self._open())
        except LeadlineError as error:
            self._stop_if_fatal(error)
            asked_s = min(error.retry_after_s, self._client.core.policy.timeout_s)
        self._failures += 1
        self._client.core.coordinator.on_error(NotCoordinator("find the coordinator again"))
        return asked_s

    def _stop_if_fatal(self, error: LeadlineError) -> None:
        """Keep an error that another attempt would not resolve; it ends the session."""
        first = self._membership.member is None and self._failures == 0
        no_cluster = first and isinstance(error, AllKnownBrokersNotAvailable)
        if no_cluster or not (error.retriable or isinstance(error, OutcomeUnknown)):
            self.error = error

    async def _open(self) -> FrameChannel:
        """Open a channel to the coordinator, unless another one becomes active meanwhile.

        A coordinator that is frozen, or whose machine is down, never answers nor refuses.
        """
        address = await self._client.run(coordinator_address(self._client.core))
        authenticator = self._client.authenticator
        dialing = asyncio.ensure_future(_open_channel(address, self._group, authenticator))
        try:
            while not (await asyncio.wait([dialing], timeout=_FIND_AGAIN_S))[0]:
                await self._check_is_active(address)
            return await dialing
        except BaseException:
            await _abandon(dialing)
            raise

    async def _check_is_active(self, address: str) -> None:
        core = self._client.core
        await self._client.run(core.refresh(core.coordinator))
        if core.coordinator.address() not in (address, None):
            raise NotCoordinator(f"the coordinator is no longer at {address}")

    async def _use(self, channel: FrameChannel) -> None:
        """Answer frames until the channel breaks or is to be closed."""
        self._channel, self._closing = channel, False
        self._outbox = asyncio.Queue()
        self._outbox.put_nowait(self._membership.hello(self._clock()))
        sending = asyncio.create_task(_send_all(channel, self._outbox))
        try:
            await self._answer(channel, sending)
        finally:
            self._membership.on_closed()
            self._channel = None
            sending.cancel()
            await asyncio.wait([sending])
            await channel.close()

    async def _answer(self, channel: FrameChannel, sending: asyncio.Task[None]) -> None:
        receiving = asyncio.create_task(channel.receive())
        try:
            while not self._closing:
                ends = [receiving] if sending.done() else [receiving, sending]
                await asyncio.wait(
                    ends, timeout=self._wait_limit_s(), return_when=asyncio.FIRST_COMPLETED
                )
                if sending.done():
                    sending.result()  # What broke the channel is received, after what came before.
                self._apply(self._membership.on_time(self._clock()))
                if receiving.done() and not self._closing:
                    self._apply(self._membership.on_frame(receiving.result(), self._clock()))
                    receiving = asyncio.create_task(channel.receive())
                await self._notify()
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)

    def _wait_limit_s(self) -> float | None:
        """Return how many seconds are left until the next deadline, if there is one."""
        due = self._membership.deadline_s()
        return None if due is None else max(0.0, due - self._clock())

    async def _notify(self) -> None:
        if self._membership.settled:
            self._failures = 0
        self._listener.on_change()
        async with self._changed:
            self._changed.notify_all()

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendFrame(frame):
                    self._outbox.put_nowait(frame)
                case RevokePartitions(partitions):
                    self._listener.on_revoked(partitions)
                case LosePartitions(partitions):
                    self._listener.on_lost(partitions)
                case AssignPartitions():
                    self._listener.on_assigned(effect)
                case CloseChannel():
                    self._closing = True
                case Warn(message):
                    _logger.warning("group %s: %s", self._group, message)
                case FailConsumer(error):
                    self._closing, self.error = True, error


async def _abandon(dialing: asyncio.Future[FrameChannel]) -> None:
    """Cancel the attempt to connect, and close the channel if it was opened."""
    dialing.cancel()
    (opened,) = await asyncio.gather(dialing, return_exceptions=True)
    if not isinstance(opened, BaseException):
        await opened.close()


async def _send_all(channel: FrameChannel, outbox: asyncio.Queue[FromConsumer]) -> None:
    """Send frames until the channel breaks; a frame that no channel can send is an error."""
    try:
        while True:
            await channel.send(await outbox.get())
    except LeadlineError:
        return  # The receiving task gets the same error.
