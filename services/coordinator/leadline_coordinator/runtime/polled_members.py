"""Members that poll over HTTP: joins, polls, and waiting for something to tell.

Their sessions belong to the manager of their group like channels. Nothing is sent over them: a
frame wakes whoever waits for it, and the next poll tells it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from leadline_client.channel import FromCoordinator, Hello, Welcome
from leadline_client.errors import (
    CoordinatorNotAvailable,
    LeadlineError,
    StaleGeneration,
    StoreOutcomeUnknown,
    UnknownMember,
)
from leadline_common.group_commits import CommitRequest, CommittedRow, OffsetToCommit
from leadline_common.group_polls import Cursor, SessionPoint, SyncAnswer, SyncRequest, decode_cursor
from leadline_coordinator.domain.channel_limits import ChannelCount
from leadline_coordinator.domain.members import GroupMember, PolledSession
from leadline_coordinator.domain.polling import (
    acknowledge,
    answer_of,
    commit_sequence,
    has_news,
    polling_member,
    positions_to_commit,
)
from leadline_coordinator.domain.records import MemberSubscription
from leadline_coordinator.domain.subscriptions import PollingTerms
from leadline_coordinator.runtime.coordinator import Coordinator
from leadline_coordinator.runtime.group_manager import Channel, GroupManager
from leadline_coordinator.runtime.offsets import GroupOffsets


@dataclass(slots=True, eq=False)
class PolledChannel(Channel):
    """Takes the place of a connection: `news` is set by the next frame, or by the end."""

    on_end: Callable[[], None] = lambda: None
    welcome: Welcome | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self, frame: FromCoordinator) -> None:
        """Wake whoever waits for a frame."""
        if isinstance(frame, Welcome):
            self.welcome = frame
        self.wake()

    def end(self) -> None:
        """End the session."""
        if not self._ended:
            self._ended = True
            self.on_end()
            self.wake()

    def wake(self) -> None:
        """Wake whoever waits for news."""
        self.news.set()
        self.news = asyncio.Event()


@dataclass(frozen=True, slots=True)
class PolledMembers:
    """The members of one coordinator that poll. `new_connection` numbers sessions and channels."""

    coordinator: Coordinator
    counted: ChannelCount
    new_connection: Callable[[], int]

    def join(self, group: str, hello: Hello, terms: PollingTerms) -> Welcome:
        """Let a consumer join a group.

        Raises:
            TooManyChannels: there are too many.
            LeadlineError: the group refuses it; see `GroupMembership.on_hello`.

        """
        channel = self._open(group)
        try:
            self.coordinator.open_channel(channel, hello, terms)
        except BaseException:
            channel.end()
            raise
        if channel.welcome is None:
            raise UnknownMember("the member was removed at once: join again")
        return channel.welcome

    def subscription(self, group: str, member: str, secret: str) -> MemberSubscription:
        """Return what a member asked for when it joined.

        Raises:
            UnknownGroup, UnknownMember, FencedInstance, WrongMemberSecret, InvalidRequest: see
                `polling_member`.

        """
        return self._member(self.coordinator.manager(group), member, secret).subscription

    async def sync(self, group: str, name: str, request: SyncRequest) -> SyncAnswer:
        """Apply a poll, and return what the member is told; or wait for something to tell.

        Raises:
            UnknownGroup, UnknownMember, FencedInstance, WrongMemberSecret: the caller is no member
                (any more).
            InvalidRequest: the cursor is none, or the member has a channel.
            CoordinatorNotAvailable: this coordinator may have lost leadership; nothing was done.
            OutcomeUnknown: positions may or may not be committed; the poll may be repeated.

        """
        manager = self.coordinator.manager(group)
        cursor = decode_cursor(request.cursor)
        member = self._member(manager, name, request.secret)
        if request.watch is not None:
            return await self._watch(manager, member, request.watch, request.wait_ms)
        not_committed: Sequence[CommittedRow] = ()
        if request.commit and cursor is not None:
            not_committed = await self._commit(manager, name, request.secret, cursor)
            member = self._member(manager, name, request.secret)
            self._check_leadership(StoreOutcomeUnknown)
        self._check_leadership(CoordinatorNotAvailable)
        session = self._session(manager, member, cursor)
        now_ms = self.coordinator.context.clock.monotonic_ms()
        acknowledge(manager.group, member, session, cursor, now_ms)
        answer = answer_of(manager.group, member, session, now_ms)
        channel = manager.channel_of(session.connection)
        if isinstance(channel, PolledChannel):
            channel.wake()  # an older poll that waits is superseded
        manager.apply_effects()
        return msgspec.structs.replace(answer, not_committed=list(not_committed))

    def _open(self, group: str) -> PolledChannel:
        self.counted.open_polled()
        return PolledChannel(group, self.new_connection(), on_end=self.counted.close_polled)

    def _check_leadership(self, error: type[LeadlineError]) -> None:
        """Check that this coordinator may extend the lease of a member (rules R10 and R16).

        After a pause of this process, polls may come before the end of the term is noticed. Another
        coordinator may have counted the last lease of the member by then.

        Raises:
            LeadlineError: the `error`; it may not.

        """
        coordinator = self.coordinator
        if not (coordinator.ready.is_set() and coordinator.context.store.lease_valid()):
            raise error("this coordinator may have lost leadership: poll again")

    def _member(self, manager: GroupManager, name: str, secret: str) -> GroupMember:
        with self.coordinator.context.metrics.refused_secrets_counted("poll"):
            return polling_member(manager.group, name, secret)

    def _session(
        self, manager: GroupManager, member: GroupMember, cursor: Cursor | None
    ) -> PolledSession:
        """Return the session of a member, a new one if its last one is over."""
        if not isinstance(member.session, PolledSession):
            manager.check_exists()
            channel = self._open(manager.group.name)
            generation = -1 if cursor is None else cursor.generation
            manager.on_return(member, channel, generation)
        session = member.session
        if not isinstance(session, PolledSession):
            raise UnknownMember(f"{member.id!r} has no session any more: join again")
        return session

    async def _commit(
        self, manager: GroupManager, name: str, secret: str, cursor: Cursor
    ) -> list[CommittedRow]:
        """Commit the positions of a cursor; return those that were refused."""
        offsets = GroupOffsets(self.coordinator)
        while True:
            member = self._member(manager, name, secret)
            session = self._session(manager, member, cursor)
            new = positions_to_commit(manager.group, member, session, cursor)
            if not new:
                return []
            request = self._commit_request(member, secret, cursor, new)
            try:
                outcomes = await offsets.commit(manager.group.name, request)
            except StaleGeneration:
                continue  # A Start was sent meanwhile: commit what the member has kept.
            return [
                CommittedRow(one.topic, one.partition, refusal.code, refusal.message)
                for one, outcome in zip(new, outcomes, strict=True)
                if (refusal := outcome.refusal) is not None
            ]

    def _commit_request(
        self, member: GroupMember, secret: str, cursor: Cursor, offsets: Sequence[OffsetToCommit]
    ) -> CommitRequest:
        return CommitRequest(
            tuple(offsets),
            member.id,
            member.sent_generation,
            self.coordinator.context.term.epoch,
            sequence=commit_sequence(cursor.point),
            topic_ids={topic: one.topic_id for topic, one in cursor.topics.items()},
            secret=secret,
        )

    async def _watch(
        self, manager: GroupManager, member: GroupMember, point: SessionPoint, wait_ms: int
    ) -> SyncAnswer:
        """Wait until there is something to tell beyond a point; acknowledge nothing."""
        group = manager.group
        changed = superseded = False
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1000):
                while True:
                    group.check_not_replaced(member.id)
                    group.member(member.id)  # It may be removed while this waits.
                    session = member.session
                    if not isinstance(session, PolledSession):
                        changed = True  # after an election: the next poll begins a session
                        break
                    superseded = session.answers > point.answer
                    changed = has_news(group, session, point)
                    channel = manager.channel_of(session.connection)
                    if superseded or changed or not isinstance(channel, PolledChannel):
                        break
                    await channel.news.wait()
        return SyncAnswer(
            point,
            member.sent_generation,
            member.subscription.session_timeout_ms or 0,
            0,
            member.subscription.offset_reset,
            changed=changed,
            superseded=superseded,
        )
