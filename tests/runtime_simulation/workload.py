"""Producers of unique values with acks=all, idempotent ones that repeat and others; and readers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from leadline_client import batches
from leadline_client.errors import (
    LeadlineError,
    OffsetOutOfRange,
    OutcomeUnknown,
    TopicIdMismatch,
    UnknownPartition,
    UnknownTopic,
)
from leadline_client.wire import TopicPartition
from leadline_common.rpc import MSGPACK
from tests.runtime_simulation.log_starts import LogStarts
from tests.runtime_simulation.messages import (
    FETCH_PATH,
    PRODUCE_PATH,
    PRODUCER_ID_PATH,
    Fetch,
    Fetched,
    Produce,
    Produced,
    ProducerId,
)
from tests.runtime_simulation.network import Network
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.topics import Topics, name_of
from tests.runtime_simulation.world import World
from tests.support.checks.history import History, Read

TIMEOUT_MS = 800
_LONGEST_PAUSE_S = 4.0
_T = TypeVar("_T")
_NO_SUCH_TOPIC = (TopicIdMismatch, UnknownTopic, UnknownPartition)


class TopicGone(Exception):
    """The topic that a request names by its id is no more."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record to send."""

    value: bytes
    key: bytes | None = None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(eq=False)
class Client:
    """Sends requests about one partition to whichever broker says that it leads."""

    world: World
    network: Network
    history: History
    topics: Topics
    number: int
    topic: str
    partition: int
    brokers: list[str]
    _leader: str = field(default="", init=False)

    def of(self, partition: TopicPartition) -> bool:
        """Tell whether this is a client of a partition."""
        return partition == (self.topic, self.partition)

    async def ask_once(
        self, path: str, body: bytes, kind: type[_T], *, repeatable: bool = True
    ) -> _T:
        """Send a request to the leader that is known.

        Raises:
            LeadlineError: it was refused, or its outcome is unknown.

        """
        to = self._leader or self.world.random.choice(self.brokers)
        try:
            answer = await self.network.post(
                to, path, body, MSGPACK, TIMEOUT_MS / 1000 * 1.5, repeatable=repeatable
            )
        except OutcomeUnknown:
            self._leader = ""
            raise
        except LeadlineError as refusal:
            hint = refusal.leader
            named = f"broker-{hint.id}" if hint is not None and hint.id >= 0 else ""
            self._leader = named if named != self._leader else ""
            raise
        self._leader = to
        return msgspec.msgpack.decode(answer, type=kind)

    async def pause(self) -> None:
        """Wait a little before another attempt."""
        await asyncio.sleep(self.world.between(0.01, 0.1))


@dataclass(eq=False, kw_only=True)
class Producer(Client):
    """Sends one batch after another."""

    pause_s: float
    idempotent: bool
    on_acknowledged: Callable[[Producer], object]
    acked: int = field(default=0, init=False)
    sent: int = field(default=0, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _stopping: bool = field(default=False, init=False)
    _sequence: int = field(default=0, init=False)
    _producer_id: int = field(default=-1, init=False)
    _topic_id: str = field(default="", init=False)

    def start(self) -> None:
        """Start the producer's process."""
        self._task = self.world.loop.in_process(Process(f"producer-{self.number}"), self._run())

    def stop(self) -> None:
        """Send nothing new any more."""
        self._stopping = True

    @property
    def busy(self) -> bool:
        """Whether the outcome of a batch is still open."""
        return self._task is not None and not self._task.done()

    async def _run(self) -> None:
        while not self._stopping:
            await asyncio.sleep(self.world.between(0, 2 * self.pause_s))
            if not self._topic_id:
                self._find_topic()
            if self._topic_id:
                await self._send_batch(1 + self.world.random.randrange(3))

    def _find_topic(self) -> None:
        """Adopt the topic that has the name now, if it has this partition."""
        topic = self.topics.assignment(self.topic)
        if topic is not None and self.partition in topic.partitions:
            self._topic_id = topic.topic_id
            self._producer_id = -1

    async def _send_batch(self, count: int) -> None:
        if self.idempotent and self._producer_id < 0:
            self._producer_id = (await self._ask(PRODUCER_ID_PATH, b"\x80", ProducerId)).id
            self._sequence = 0
        values = [f"p{self.number}-{self.sent + index}" for index in range(count)]
        self.sent += count
        for value in values:
            self.history.send(
                value, name_of(self.topic, self._topic_id), self.partition, self.number
            )
        try:
            produced = await self._ask(PRODUCE_PATH, self._encoded(values), Produced)
        except OutcomeUnknown:
            for value in values:
                self.history.give_up(value)
            return
        except TopicGone:
            self._topic_id = ""
            for value in values:
                self.history.refuse(value)
            return
        self._sequence += count
        for offset, value in enumerate(values, produced.base_offset):
            self.history.ack(value, offset)
        self.acked += count
        self.on_acknowledged(self)

    def _encoded(self, values: list[str]) -> bytes:
        batch = batches.encode(
            [Record(value.encode()) for value in values],
            now_ms=int(time.time() * 1000),
            producer_id=self._producer_id,
            producer_epoch=0 if self.idempotent else -1,
            base_sequence=self._sequence if self.idempotent else -1,
        )
        return msgspec.msgpack.encode(
            Produce(self.topic, self.partition, bytes(batch), TIMEOUT_MS, self._topic_id)
        )

    async def _ask(self, path: str, body: bytes, kind: type[_T]) -> _T:
        """Send until it is known that it took effect; an unknown outcome ends it.

        An idempotent producer sends after an unknown outcome, too.

        Raises:
            OutcomeUnknown: it may have taken effect, and must not be repeated.
            TopicGone: the topic was deleted, and nothing was appended.

        """
        unknown: OutcomeUnknown | None = None
        while True:
            try:
                return await self.ask_once(path, body, kind, repeatable=self.idempotent)
            except OutcomeUnknown as problem:
                if not self.idempotent:
                    raise
                unknown = problem
            except _NO_SUCH_TOPIC:
                if self.topics.id_of(self.topic) != self._topic_id:
                    self._note_deleted(unknown)
            except LeadlineError as refusal:
                del refusal  # nothing was appended
            await self.pause()

    def _note_deleted(self, unknown: OutcomeUnknown | None) -> None:
        """End a request to a topic that was deleted."""
        self.world.reached("a producer met a deleted topic")
        if unknown is not None:
            self._topic_id = ""
            raise unknown
        raise TopicGone


@dataclass(eq=False)
class Reader(Client):
    """Reads a partition from its begin on, as a consumer that never goes back.

    It begins again when the topic was deleted and created again, and goes on at the log start when
    retention has removed what it would read next. `idle` is the probability that it pauses for long
    after an answer. `records` are (offset, value) in
    the order in which they came, of the incarnation `topic_id`; `earlier` what was read of those
    before; `problems` what a consumer must never see.
    """

    log_starts: LogStarts
    idle: float
    records: list[tuple[int, Hashable]] = field(default_factory=list, init=False)
    earlier: list[Read] = field(default_factory=list, init=False)
    problems: list[str] = field(default_factory=list, init=False)
    topic_id: str = field(default="", init=False)
    _offset: int = field(default=0, init=False)

    @property
    def position(self) -> int:
        """The offset that it reads next."""
        return self._offset

    def start(self) -> None:
        """Start the reader's process."""
        self.world.loop.in_process(Process(f"reader-{self.number}"), self._run())

    def reads(self) -> list[Read]:
        """Return what it has read, by incarnation."""
        return [*self.earlier, self._as_read()] if self.topic_id else self.earlier

    def _as_read(self) -> Read:
        name = name_of(self.topic, self.topic_id)
        return Read((name, self.partition), self.records, f"reader {self.number}", complete=False)

    async def _run(self) -> None:
        while True:
            body = msgspec.msgpack.encode(Fetch(self.topic, self.partition, self._offset, 300))
            try:
                self._take(await self.ask_once(FETCH_PATH, body, Fetched))
                if self.world.chance(self.idle):
                    await asyncio.sleep(self.world.between(0, _LONGEST_PAUSE_S))
            except OffsetOutOfRange as error:
                if self.topics.id_of(self.topic) != self.topic_id:
                    self._begin_again("")
                elif not self._continue_at_start(error.details["log_start_offset"]):
                    self.problems.append(f"I8: reader {self.number} at {self._offset}: {error}")
                    return
            except LeadlineError:
                await self.pause()

    def _begin_again(self, topic_id: str) -> None:
        """Read another incarnation from its begin, or whichever comes next."""
        if self.topic_id:
            self.world.reached("a reader met a deleted topic")
            self.earlier.append(self._as_read())
        self.topic_id, self._offset, self.records = topic_id, 0, []

    def _continue_at_start(self, log_start: int) -> bool:
        """Go on at a log start beyond the position; return whether it may be one."""
        name = name_of(self.topic, self.topic_id)
        if not self._offset < log_start <= self.log_starts.highest(name, self.partition):
            return False
        self.world.reached("a reader continued at the log start")
        self.earlier.append(self._as_read())
        self._offset, self.records = log_start, []
        return True

    def _take(self, fetched: Fetched) -> None:
        if fetched.topic_id != self.topic_id:
            self._require_newer(fetched.topic_id)
            at_begin = self._offset == 0
            self._begin_again(fetched.topic_id)
            if not at_begin:
                return
        for record in batches.decode(fetched.records):
            if record.offset < self._offset:
                continue
            if record.offset > self._offset:
                self.problems.append(
                    f"I9: reader {self.number} skips from {self._offset} to {record.offset}"
                )
            self.records.append((record.offset, (record.value or b"").decode()))
            self._offset = record.offset + 1

    def _require_newer(self, topic_id: str) -> None:
        """Note it if a topic is served again after a later one of its name (F25)."""
        if name_of(self.topic, topic_id) in {read.partition[0] for read in self.earlier}:
            self.problems.append(f"I3: reader {self.number} got deleted topic {topic_id} again")
