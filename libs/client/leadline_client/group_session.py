"""The life of a group member: consult, open the channel, answer, and again when it breaks.

All decisions are `Membership`'s; this is its clock, its socket and its task.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final, Protocol, TypeAlias

from leadline_client.channel import FromConsumer
from leadline_client.client import AsyncLeadlineClient
from leadline_client.errors import (
    AllKnownBrokersNotAvailable,
    LeadlineError,
    NotCoordinator,
    OutcomeUnknown,
)
from leadline_client.groups import GroupMetadata, find_coordinator, leave_group
from leadline_client.membership import (
    Effect,
    Fail,
    GiveUp,
    HangUp,
    Lose,
    Membership,
    Send,
    Subscription,
    Take,
    TopicPartition,
)
from leadline_client.websocket import FrameChannel, open_channel

Clock: TypeAlias = Callable[[], float]
Dial: TypeAlias = Callable[[str, str], Awaitable[FrameChannel]]

_LEAVE_WITHIN_S: Final = 3.0
_CONSULT_AGAIN_S: Final = 1.0
"""How long a coordinator may take to open a channel before brokers are asked who is in office."""


class Application(Protocol):
    """Who consumes. All calls come from the event loop, and none may block."""

    def give_up(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Stop consuming these soon, and then call `GroupSession.given_up`."""

    def lose(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Consume these no more: they are somebody else's."""

    def take(self, taken: Take) -> None:
        """Consume what was added."""

    def wake(self) -> None:
        """Look again: whether to consume may have changed."""


class GroupSession:
    """One consumer's membership, kept up by a task of its own.

    `clock` counts seconds (monotonic), also while the machine's other processes
    run and this one does not: a lease must run out for who was stopped.
    """

    def __init__(
        self,
        client: AsyncLeadlineClient,
        group: str,
        subscription: Subscription,
        application: Application,
        *,
        clock: Clock,
        dial: Dial = open_channel,
    ) -> None:
        self.error: Exception | None = None
        self._client = client
        self._group = group
        self._application = application
        self._clock = clock
        self._dial = dial
        self._membership = Membership(subscription)
        self._outbox: asyncio.Queue[FromConsumer] = asyncio.Queue()
        self._channel: FrameChannel | None = None
        self._hung_up = False
        self._failures = 0
        self._changed = asyncio.Condition()
        self._task = asyncio.create_task(self._live(), name=f"group {group}")

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """What this member owns, or claims while its channel is down."""
        return self._membership.owned

    @property
    def standing(self) -> GroupMetadata | None:
        """As whom to commit; None as long as this is no member."""
        one = self._membership
        if one.member is None or one.coordinator_epoch is None or one.generation is None:
            return None
        return GroupMetadata(one.member, one.coordinator_epoch, one.generation)

    @property
    def answer_within_s(self) -> float:
        """How long a Stop, or else the coordinator, can wait from now on."""
        due = self._membership.deadline_s()
        return 0.0 if due is None else max(0.0, due - self._clock())

    def may_consume(self) -> bool:
        """Tell whether a record may be given to the application at this moment."""
        return self._membership.may_consume(self._clock())

    def given_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Say that the application consumes these no more, and has committed them."""
        self._apply(self._membership.on_given_up(partitions, self._clock()))

    async def resubscribe(self, subscription: Subscription) -> None:
        """Ask for something else: joins again as the same member."""
        self._membership.subscription = subscription
        if self._channel is not None:
            await self._channel.close()

    async def until_settled(self, timeout_s: float) -> bool:
        """Wait for a Start; tell whether one came in time, and before a Stop."""
        one = self._membership
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                # The next Start comes after the Stop's answer, for which the caller may be awaited.
                await self._changed.wait_for(lambda: one.settled or one.stopping or self.error)
        except TimeoutError:
            return False
        return one.settled

    async def leave(self, *, quietly: bool) -> None:
        """End the membership; `quietly`: without telling the coordinator, to come back soon."""
        member = self._membership.member
        if member is not None and not quietly and self.error is None:
            flow = leave_group(self._client.core, self._group, member, timeout_s=_LEAVE_WITHIN_S)
            # When it fails, the end of the socket or of the lease says the same a little later.
            with suppress(LeadlineError):
                await self._client.run(flow)
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _live(self) -> None:
        try:
            while self.error is None:
                await self._attempt()
                await self._tell()
                policy = self._client.core.policy
                await asyncio.sleep(policy.pause_s(self._failures, random.random()))
        except Exception as error:
            # Whatever it is, the application is to hear of it: nobody else waits for this task.
            self.error = error
        self._apply(self._membership.forget())
        await self._tell()

    async def _attempt(self) -> None:
        """Be a member once, until the channel ends."""
        try:
            await self._converse(await self._open())
        except LeadlineError as error:
            self._judge(error)
        self._failures += 1
        self._client.core.coordinator.learn(NotCoordinator("consult again"))

    def _judge(self, error: LeadlineError) -> None:
        """Give up what trying again would not mend."""
        first = self._membership.member is None and self._failures == 0
        hopeless = first and isinstance(error, AllKnownBrokersNotAvailable)
        if hopeless or not (error.retriable or isinstance(error, OutcomeUnknown)):
            self.error = error

    async def _open(self) -> FrameChannel:
        """Open a channel at the coordinator, unless another one takes the office meanwhile.

        One that is frozen, or whose machine is gone, refuses nothing: it never answers.
        """
        address = await self._client.run(find_coordinator(self._client.core))
        dialing = asyncio.ensure_future(self._dial(address, self._group))
        try:
            while not (await asyncio.wait([dialing], timeout=_CONSULT_AGAIN_S))[0]:
                await self._check_in_office(address)
            return await dialing
        except BaseException:
            await _abandon(dialing)
            raise

    async def _check_in_office(self, address: str) -> None:
        core = self._client.core
        await self._client.run(core.refresh(core.coordinator))
        if core.coordinator.address() not in (address, None):
            raise NotCoordinator(f"the coordinator is not at {address} any more")

    async def _converse(self, channel: FrameChannel) -> None:
        """Answer until the channel breaks or is hung up."""
        self._channel, self._hung_up = channel, False
        self._outbox = asyncio.Queue()
        self._outbox.put_nowait(self._membership.hello(self._clock()))
        sending = asyncio.create_task(_send_all(channel, self._outbox))
        try:
            await self._answer(channel)
        finally:
            self._membership.on_closed()
            self._channel = None
            sending.cancel()
            await asyncio.wait([sending])
            await channel.close()

    async def _answer(self, channel: FrameChannel) -> None:
        receiving = asyncio.create_task(channel.receive())
        try:
            while not self._hung_up:
                await asyncio.wait([receiving], timeout=self._patience_s())
                self._apply(self._membership.on_time(self._clock()))
                if receiving.done() and not self._hung_up:
                    self._apply(self._membership.on_frame(receiving.result(), self._clock()))
                    receiving = asyncio.create_task(channel.receive())
                await self._tell()
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)

    def _patience_s(self) -> float | None:
        due = self._membership.deadline_s()
        return None if due is None else max(0.0, due - self._clock())

    async def _tell(self) -> None:
        if self._membership.settled:
            self._failures = 0
        self._application.wake()
        async with self._changed:
            self._changed.notify_all()

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(frame):
                    self._outbox.put_nowait(frame)
                case GiveUp(partitions):
                    self._application.give_up(partitions)
                case Lose(partitions):
                    self._application.lose(partitions)
                case Take():
                    self._application.take(effect)
                case HangUp():
                    self._hung_up = True
                case Fail(error):
                    self._hung_up, self.error = True, error


async def _abandon(dialing: asyncio.Future[FrameChannel]) -> None:
    """Have no channel come of this, and none left open."""
    dialing.cancel()
    (opened,) = await asyncio.gather(dialing, return_exceptions=True)
    if not isinstance(opened, BaseException):
        await opened.close()


async def _send_all(channel: FrameChannel, outbox: asyncio.Queue[FromConsumer]) -> None:
    try:
        while True:
            await channel.send(await outbox.get())
    except LeadlineError:
        return  # the receiving side hears of it too
