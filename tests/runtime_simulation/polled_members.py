"""Members of a consumer group that poll over plain HTTP, each a process of its own.

They do what "With HTTP alone" of docs/consumer-groups.md asks of a program. What such a member owns
is what the last answer in time has named, until its lease ends by its own clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, ClassVar, Final

import msgspec

from leadline_broker.api.group_polls import PollAnswer, PolledRecord
from leadline_client.errors import FencedInstance
from leadline_common.group_commits import CommitAnswer
from tests.runtime_simulation.member_processes import (
    ASSIGNOR,
    FENCED,
    FORMER_REFUSED,
    MemberProcess,
    secret_of,
)
from tests.runtime_simulation.polled_habits import Habits, draw_habits
from tests.runtime_simulation.polled_requests import NO_ANSWER, GroupRequests, Reply
from tests.support.groups.log import Hold, Partition
from tests.support.groups.member import Row

MOVED: Final = "a polled member was answered by another broker"
REVOKED: Final = "a polled member was told to give up partitions"
EXPIRED: Final = "the lease of a polled member ended"
LATE: Final = "a polled member discarded an answer that was late"
REJOINED: Final = "a polled member joined again"
REPEATED: Final = "a polled member repeated a commit of unknown outcome"
SUPERSEDED: Final = "a poll was superseded"
FAILOVER: Final = "a polled member went on under another coordinator"
HELD_BACK: Final = "a poll or commit was held back"
SITUATIONS: Final = (
    MOVED,
    REVOKED,
    EXPIRED,
    LATE,
    REJOINED,
    REPEATED,
    SUPERSEDED,
    FAILOVER,
    HELD_BACK,
)
"""What such members must meet in some seeds."""

_AGAIN: Final = (NO_ANSWER, 503, 504)
"""Answers after which a request is repeated."""
_CONFLICT, _NOT_FOUND = 409, 404
_ATTEMPTS: Final = 10
_MOST_PAUSES: Final = 3
"""How often a member is so slow that its lease may end: it has to come to the end of the topic."""
_CHUNK: Final = 4
"""Records that a member processes at once."""


@dataclass(slots=True)
class Membership:
    """What a member knows of itself.

    `acknowledged` is the answer whose records it has processed: its cursor goes into the next poll.
    It is `unbroken` if no lease has ended since.
    """

    consumer: str
    secret: str
    acknowledged: PollAnswer | None = None
    unbroken: bool = False
    first_sent_s: float | None = None
    """When the cursor was first sent."""
    sequence: int = 0


@dataclass(eq=False)
class PolledMember(MemberProcess):
    """One program that consumes over HTTP."""

    peers: ClassVar[str] = "broker-"
    _habits: Habits = field(init=False)
    _requests: GroupRequests = field(init=False)
    _membership: Membership | None = field(default=None, init=False)
    _broker: str = field(default="", init=False)
    _owned: set[Partition] = field(default_factory=set, init=False)
    _deadline_s: float = field(default=0.0, init=False)
    _pauses: int = field(default=0, init=False)
    _due: dict[Partition, int] = field(default_factory=dict, init=False)
    """Offsets after the answers that were processed, and are not known to be committed."""

    @property
    def commits_itself(self) -> bool:
        """Whether it commits with requests of their own, and not by its polls."""
        return self._habits.commits_itself

    @property
    def has_lease(self) -> bool:
        """Whether it may consume what it believes to own."""
        return self._now_s < self._deadline_s

    @property
    def _now_s(self) -> float:
        return self.machine.world.loop.now_s

    def holds(self) -> list[Hold]:
        """Return what it held and when; nothing beyond the end of its lease."""
        if self._process.alive:
            self._look_at_lease()
        return super().holds()

    def start(self) -> None:
        """Start its process."""
        self._requests = GroupRequests(self.machine.web, self.brokers)
        self._habits = draw_habits(self.machine.world.random, self.group)
        super().start()

    async def _run(self) -> None:
        while not self._stopping.is_set():
            if self._membership is None:
                await self._join()
            else:
                await self._poll(self._membership)
        if self._membership is not None:
            await self._leave(self._membership)
        self.log.write("closed")

    # -- joining and leaving ---------------------------------------------------

    async def _join(self) -> None:
        body: dict[str, Any] = {
            "topics": [self.topic],
            "offset_reset": "earliest",
            "session_timeout_ms": self._habits.session_ms,
            "assignor": ASSIGNOR,
            "protocol": self.group.protocol,
            "client_id": self.name,
        }
        if self.instance is not None:
            body["instance_id"] = self.instance
            if sum(self.instance.encode()) % 2:  # As all of this instance, and half of the others.
                body["instance_secret"] = secret_of(self.instance)
        reply = await self._requests.post("consumers", body)
        if reply.status == 201:
            joined = msgspec.json.decode(reply.body)
            self._membership = Membership(joined["consumer"], joined["secret"])
            self.log.write("joined", detail=joined["consumer"])
        else:
            self._expect(reply, _CONFLICT, *_AGAIN)
            await self._requests.pause()

    async def _leave(self, member: Membership) -> None:
        """Commit what is processed, give up everything, and say so."""
        for _ in range(_ATTEMPTS):
            before = member.acknowledged
            epoch = None if before is None else before.coordinator_epoch
            answer = await self._poll(member, max_records=0)
            if self._membership is None or (answer and answer.coordinator_epoch == epoch):
                break
        self._give_up(self._owned)
        for _ in range(_ATTEMPTS if self._membership is not None else 0):
            path = f"members/{member.consumer}/leave"
            reply = await self._requests.post(path, {"secret": member.secret})
            if reply.status in {200, _NOT_FOUND} or reply.code == FencedInstance.code:
                break
            self._expect(reply, *_AGAIN)
            await self._requests.pause()

    # -- polling ---------------------------------------------------------------

    async def _poll(self, member: Membership, **options: Any) -> PollAnswer | None:
        """Poll once and process the records; return the answer if it came in time."""
        wait_ms, sent_s = self.machine.world.random.choice((50, 200, 500)), self._now_s
        body = {
            "secret": member.secret,
            "cursor": None if member.acknowledged is None else member.acknowledged.cursor,
            "commit": not self._habits.commits_itself,
            "max_records": self._habits.max_records,
            "wait_ms": wait_ms,
            **options,
        }
        if member.first_sent_s is None:
            member.first_sent_s = sent_s
        path = f"consumers/{member.consumer}/poll"
        reply = await self._requests.post(path, body, wait_ms / 1000 + 0.8)
        self._look_at_lease()
        if reply.status == 200:
            answer = msgspec.json.decode(reply.body, type=PollAnswer)
            return await self._take(member, answer, sent_s, reply.broker)
        if reply.status == _NOT_FOUND:
            self.machine.world.reached(REJOINED)
            self._give_up(self._owned)
            self._due.clear()
            self._membership = None
        elif reply.code == FencedInstance.code:
            self.machine.world.reached(FENCED)
            self._give_up(self._owned)
            self._membership = None
            self._stopping.set()
        else:
            self._expect(reply, _CONFLICT, *_AGAIN)
            self._note_failed_poll(reply, commits=bool(self._due) and bool(body["commit"]))
            await self._requests.pause()
        return None

    def _note_failed_poll(self, reply: Reply, *, commits: bool) -> None:
        if reply.status == _CONFLICT:
            self.machine.world.reached(SUPERSEDED)
        elif reply.is_unknown and commits:
            self.machine.world.reached(REPEATED)

    async def _take(
        self, member: Membership, answer: PollAnswer, sent_s: float, broker: str
    ) -> PollAnswer | None:
        """Process an answer; return it if that was done before its lease has ended."""
        self._note_committed(member, answer)
        deadline_s = sent_s + answer.lease_ms / 1000
        if self._now_s >= deadline_s:
            self.machine.world.reached(LATE)
            return None
        self._note_news(member, answer, broker)
        self._deadline_s = max(self._deadline_s, deadline_s)
        self._own(answer)
        if not member.unbroken:
            self._keep_due(answer)
        if not await self._process_all(answer):
            return None
        member.acknowledged, member.first_sent_s, member.unbroken = answer, None, True
        if self._habits.commits_itself:
            await self._commit(member, answer)
        return answer

    def _note_news(self, member: Membership, answer: PollAnswer, broker: str) -> None:
        world, before = self.machine.world, member.acknowledged
        if before is not None and before.coordinator_epoch != answer.coordinator_epoch:
            world.reached(FAILOVER)
        if self._broker not in {"", broker}:
            world.reached(MOVED)
        self._broker = broker
        if answer.revoked:
            world.reached(REVOKED)

    def _own(self, answer: PollAnswer) -> None:
        """Give up what the answer does not name, and begin with what is new in it."""
        owned = {(row.topic, row.partition) for row in answer.assignment}
        self._give_up(self._owned - owned)
        if new := owned - self._owned:
            self.log.write("assigned", _rows(new), str(answer.generation))
        self._owned = owned

    async def _process_all(self, answer: PollAnswer) -> bool:
        """Process all records; return whether the lease has held for so long."""
        world, done = self.machine.world, dict[Partition, int]()
        for rows in self._chunks(answer.records):
            if self._pauses < _MOST_PAUSES and world.chance(self._habits.slow):
                self._pauses += 1
                await asyncio.sleep(world.between(0.0, 1.2 * self._habits.session_ms / 1000))
            if not self._look_at_lease():
                return False
            self.log.write("consumed", rows)
            done |= {(topic, number): after for topic, number, _, after in rows}
        if not self._look_at_lease():
            return False
        self._due |= done
        return True

    def _chunks(self, records: Sequence[PolledRecord]) -> Iterator[list[Row]]:
        """Yield some records after others of the same incarnation of a partition."""

        def place(one: PolledRecord) -> tuple[str, int, str]:
            return one.topic, one.partition, self.incarnation_of(one.value)

        for (topic, number, incarnation), some in groupby(records, place):
            self.log.reading[topic, number] = incarnation
            rows: list[Row] = []
            for one in some:
                if rows and rows[-1][3] == one.offset:
                    rows[-1] = (*rows[-1][:3], one.offset + 1)
                else:
                    rows.append((topic, number, one.offset, one.offset + 1))
                if one.offset + 1 - rows[0][2] >= _CHUNK:
                    yield rows
                    rows = []
            if rows:
                yield rows

    # -- ownership -------------------------------------------------------------

    def _look_at_lease(self) -> bool:
        """Return whether the lease holds; otherwise everything was given up when it ended."""
        if self.has_lease:
            return True
        if self._owned:
            self.machine.world.reached(EXPIRED)
            self._stop(self._owned, self._deadline_s)
        if self._membership is not None:
            self._membership.unbroken = False
        return False

    def _stop(self, partitions: set[Partition], at_s: float | None = None) -> None:
        """Consume some partitions no more, since a time if that is over."""
        if partitions:
            self.log.write("revoked", _rows(partitions), at_s=at_s)
        self._owned = self._owned - partitions

    def _give_up(self, partitions: set[Partition]) -> None:
        """Leave partitions to others, also what is not committed."""
        self._stop(partitions)
        for one in partitions:
            self._due.pop(one, None)

    def _keep_due(self, answer: PollAnswer) -> None:
        """Keep what is to be committed where the answer goes on there.

        Elsewhere somebody else may have committed more since the lease has ended.
        """
        begin = {(row.topic, row.partition): row.position for row in answer.assignment}
        begin |= {(row.topic, row.partition): row.offset for row in reversed(answer.records)}
        self._due = {one: offset for one, offset in self._due.items() if begin.get(one) == offset}

    # -- commits ---------------------------------------------------------------

    def _note_committed(self, member: Membership, answer: PollAnswer) -> None:
        """Write down what the poll has committed that is answered now.

        The first poll under another coordinator commits nothing.
        """
        before = member.acknowledged
        if self._habits.commits_itself or before is None or not member.unbroken:
            return
        if before.coordinator_epoch != answer.coordinator_epoch:
            return
        refused = {(row.topic, row.partition) for row in answer.not_committed}
        if any(
            "was removed and added again" in (row.message or "") for row in answer.not_committed
        ):
            self.machine.world.reached(FORMER_REFUSED)
        told = {(row.topic, row.partition) for row in answer.assignment}
        told |= {(row.topic, row.partition) for row in answer.revoked}
        rows: list[Row] = [
            (row.topic, row.partition, 0, row.position)
            for row in before.assignment
            if row.position is not None
            and self._due.get((row.topic, row.partition)) == row.position
            and (row.topic, row.partition) in told - refused
        ]
        self._committed(rows, member.first_sent_s)

    async def _commit(self, member: Membership, answer: PollAnswer) -> None:
        """Commit what is processed, and repeat that while the outcome is unknown."""
        offsets = sorted(self._due.items())
        if not offsets:
            return
        member.sequence += 1
        body = {
            "offsets": [{"topic": t, "partition": n, "offset": o} for (t, n), o in offsets],
            "member": member.consumer,
            "secret": member.secret,
            "generation": answer.generation,
            "coordinator_epoch": answer.coordinator_epoch,
            "sequence": member.sequence,
        }
        began_s = self._now_s
        while self._look_at_lease():
            reply = await self._requests.post("offsets", body)
            if reply.status == 200:
                rows = msgspec.json.decode(reply.body, type=CommitAnswer).offsets
                done = {(row.topic, row.partition) for row in rows if not row.error_code}
                self._committed([(t, n, 0, o) for (t, n), o in offsets if (t, n) in done], began_s)
                return
            if reply.status in {_CONFLICT, _NOT_FOUND}:
                return  # The next poll tells what has become of the membership.
            self._expect(reply, *_AGAIN)
            if reply.is_unknown:
                self.machine.world.reached(REPEATED)
            await self._requests.pause()

    def _committed(self, rows: Sequence[Row], began_s: float | None) -> None:
        if rows:
            self.log.write("committed", rows, str(began_s))
        for topic, number, _, after in rows:
            if self._due.get((topic, number)) == after:
                del self._due[topic, number]

    def _expect(self, reply: Reply, *documented: int) -> None:
        """Note an answer that the documentation does not explain as a mistake of the product."""
        if reply.status not in documented:
            self.machine.world.failures.append(
                f"{self.name}: status {reply.status}: {reply.body.decode()[:200]}"
            )


def _rows(partitions: set[Partition]) -> list[Row]:
    return [(topic, number, 0, 0) for topic, number in sorted(partitions)]
