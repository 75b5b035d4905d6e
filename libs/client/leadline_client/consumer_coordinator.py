"""Between a group session and an application: what to tell it, what to commit for it.

The application hears of changes only when it polls, so that nothing is taken from
under its hands: a Stop waits for it, as long as the coordinator can wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from leadline_client.client import AsyncLeadlineClient
from leadline_client.commit_tracker import Progress
from leadline_client.consumer_settings import ConsumerSettings, Notice
from leadline_client.errors import (
    CoordinatorNotAvailable,
    LeadlineError,
    OffsetOutOfRange,
    RebalanceInProgress,
    StaleGeneration,
    TopicIdMismatch,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
)
from leadline_client.fetching import ConsumedRecord, Fetcher
from leadline_client.group_session import Clock, GroupSession
from leadline_client.groups import commit_offsets
from leadline_client.membership import Subscription, Take, TopicPartition

_QUICK_S: Final = 0.2


class ConsumerCoordinator:
    """One consumer's part in its group; the session's `Application`."""

    def __init__(
        self,
        client: AsyncLeadlineClient,
        group: str,
        fetcher: Fetcher,
        settings: ConsumerSettings,
        *,
        clock: Clock,
    ) -> None:
        self._client = client
        self._group = group
        self._fetcher = fetcher
        self._offset_reset = settings.offset_reset
        self._clock = clock
        self._session: GroupSession | None = None
        self._told: set[TopicPartition] = set()
        self._notices: deque[Notice] = deque()
        self._going: set[TopicPartition] = set()
        self._closing = False
        self._progress = Progress()
        self._committing = asyncio.Lock()
        self._auto_commit_ms = settings.auto_commit_ms
        self._committer: asyncio.Task[None] | None = None
        self.threads: tuple[tuple[TopicPartition, ...], ...] = ()

    @property
    def session(self) -> GroupSession:
        """The membership, as long as there is one."""
        if self._session is None:
            raise RuntimeError("the consumer has not subscribed")
        return self._session

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """What the application was told that it has."""
        return tuple(sorted(self._told))

    async def subscribe(self, subscription: Subscription) -> None:
        """Join, or ask for something else."""
        if self._session is not None:
            await self._session.resubscribe(subscription)
            return
        self._session = GroupSession(
            self._client, self._group, subscription, self, clock=self._clock
        )
        if self._auto_commit_ms is not None:
            committing = self._commit_now_and_then(self._auto_commit_ms / 1000)
            self._committer = asyncio.create_task(committing)

    # -- what the session says ------------------------------------------------

    def take(self, taken: Take) -> None:
        """Begin to read what was added, and have the application told of it."""
        if self._closing:
            return
        for partition, offset in taken.added:
            self._progress.begin(partition, offset)
            self._begin(partition, offset)
        self.threads = taken.threads
        assigned = (*(one for one, _ in taken.added), *self._keep())
        if assigned:
            self._notices.append(Notice("assigned", assigned))

    def give_up(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Ask the application to come back; give up at once what it was not told of yet."""
        asked = self._asked()
        known = self._known()
        untold = [one for one in partitions if one not in known]
        told = tuple(one for one in partitions if one in known - asked)
        self._drop(untold)
        if told:
            self._notices.append(Notice("revoked", told))
        self.session.given_up(untold)

    def lose(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Stop reading at once; the application hears of it when it comes back."""
        known = self._known() - self._going
        told = tuple(one for one in partitions if one in known)
        self._going.difference_update(partitions)
        self._drop(partitions)
        if told:
            self._notices.append(Notice("lost", told))

    def wake(self) -> None:
        """Have a waiting poll look again."""
        self._fetcher.news.set()

    # -- what the application does --------------------------------------------

    def come_back(self) -> None:
        """Take note that the application has done with what it was given."""
        self._progress.come_back(self._fetcher.known_position)

    def gave(self, records: Iterable[ConsumedRecord]) -> None:
        """Take note of what the application has in its hands."""
        self._progress.give({(one.topic, one.partition) for one in records})

    def sought(self, partition: TopicPartition) -> None:
        """Take note that the application has chosen another place."""
        self._progress.give([partition])

    def check(self) -> None:
        """Raise what has put an end to the membership for good."""
        if self.session.error is not None:
            raise self.session.error

    def may_give(self) -> bool:
        """Tell whether records may be given out at this moment."""
        return not self._notices and self.session.may_consume()

    async def next_notice(self) -> Notice | None:
        """Return what the application is to be told next; call `done` when it was.

        What it has consumed of revoked partitions is committed before.
        """
        if not self._notices:
            return None
        notice = self._notices.popleft()
        if notice.kind == "assigned":
            self._told.update(notice.partitions)
        elif notice.kind == "revoked":
            self._going.update(notice.partitions)
            await self._auto_commit(self.session.answer_within_s)
        return notice

    def done(self, notice: Notice) -> None:
        """Take note that the application was told."""
        if notice.kind == "assigned":
            return
        self._told.difference_update(notice.partitions)
        # What was lost while the application was giving it up may have been taken anew already.
        given_up = self._going.intersection(notice.partitions)
        self._going -= given_up
        self._fetcher.remove(given_up)
        self._progress.forget(given_up)
        self.session.given_up(given_up)

    def give_all_up(self) -> None:
        """Ask the application to give up everything, and take nothing more: it is closing."""
        self._closing = True
        self.give_up(tuple(sorted(self.session.owned)))

    async def commit(self, offsets: Mapping[TopicPartition, int], timeout_s: float) -> None:
        """Commit offsets of owned partitions, waiting out a rebalance or a new coordinator.

        Raises:
            LeadlineError: not committed: PartitionNotOwned, UnknownMember, StaleGeneration, …

        """
        give_up_s = self._clock() + timeout_s
        async with self._committing:
            while offsets:
                left_s = give_up_s - self._clock()
                try:
                    await self._commit_once(offsets, left_s)
                except (StaleGeneration, RebalanceInProgress, CoordinatorNotAvailable):
                    if not await self._may_try_again(left_s):
                        raise
                else:
                    self._progress.commit(offsets)
                    return

    async def leave(self, *, quietly: bool) -> None:
        """Leave the group, when everything is given up."""
        if self._session is None:
            return
        if self._committer is not None:
            self._committer.cancel()
            await asyncio.wait([self._committer])
        await self._session.leave(quietly=quietly)
        self._session = None

    # -- inside ----------------------------------------------------------------

    def _known(self) -> set[TopicPartition]:
        """Return what the application has and may keep, as far as it was told."""
        return self._told - self._queued("lost")

    def _asked(self) -> set[TopicPartition]:
        """Return what the application is giving up, or will when it comes back."""
        return self._going | self._queued("revoked")

    def _queued(self, kind: str) -> set[TopicPartition]:
        return {one for notice in self._notices if notice.kind == kind for one in notice.partitions}

    def _begin(self, partition: TopicPartition, offset: int | None) -> None:
        if offset is not None:
            self._fetcher.add(partition, offset)
        elif self._offset_reset == "error":
            problem = f"{partition[0]}-{partition[1]} has no committed offset to begin at"
            self._fetcher.add_stuck(partition, OffsetOutOfRange(problem))
        else:
            self._fetcher.add(partition, self._offset_reset)

    def recover(self, partition: TopicPartition, error: LeadlineError) -> bool:
        """Deal with a read that failed; see `fetching.Recover`."""
        if isinstance(error, UnknownTopic | UnknownPartition):
            return True  # deleted: the coordinator takes it away soon
        if isinstance(error, OffsetOutOfRange | TopicIdMismatch) and self._offset_reset != "error":
            self._fetcher.restart(partition, self._offset_reset)
            self._progress.begin(partition, None)  # what was consumed was of another log
            return True
        return False

    def _keep(self) -> tuple[TopicPartition, ...]:
        """Keep what the application is still being asked for, and a Start has left here.

        It was asked over a channel that has ended since. What it is told at this moment
        to be revoked is returned: that is to be assigned to it anew.
        """
        kept = self._asked() & self.session.owned
        self._withdraw(kept)
        revoked = tuple(sorted(self._going & kept))
        self._going.difference_update(revoked)
        return revoked

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these no longer, and take back notices of them that nobody saw."""
        gone = frozenset(partitions)
        self._fetcher.remove(gone)
        self._progress.forget(gone)
        self._withdraw(gone)

    def _withdraw(self, partitions: Collection[TopicPartition]) -> None:
        """Take back what of these the application was still to be told, but for losses."""
        self._notices = deque(
            kept for notice in self._notices if (kept := _without(notice, partitions)).partitions
        )

    async def _commit_once(self, offsets: Mapping[TopicPartition, int], timeout_s: float) -> None:
        standing = None if self._session is None else self._session.standing
        if self._session is not None and standing is None:
            raise UnknownMember("the consumer is no member of its group at present")
        flow = commit_offsets(
            self._client.core, self._group, offsets, standing, timeout_s=max(timeout_s, _QUICK_S)
        )
        await self._client.run(flow)

    async def _may_try_again(self, left_s: float) -> bool:
        """Wait for the next Start; not while the application itself is being waited for."""
        if self._session is None or self._asked() or left_s <= 0:
            return False
        await asyncio.sleep(_QUICK_S)
        return await self._session.until_settled(left_s)

    async def _commit_now_and_then(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            await self._auto_commit(interval_s)

    async def _auto_commit(self, timeout_s: float) -> None:
        """Commit what is consumed; what fails is due again, here or at the next owner."""
        if self._auto_commit_ms is None:
            return
        try:
            async with self._committing:
                due = self._progress.due(self.session.owned)
                if due:
                    await self._commit_once(due, timeout_s)
                    self._progress.commit(due)
        except LeadlineError:
            return


def _without(notice: Notice, gone: Collection[TopicPartition]) -> Notice:
    if notice.kind == "lost":
        return notice
    return Notice(notice.kind, tuple(one for one in notice.partitions if one not in gone))
