"""Producers of unique values with acks=all, idempotent ones that repeat and others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, TypeVar

import msgspec

from leadline_client import batches
from leadline_client.errors import (
    LeadlineError,
    OutcomeUnknown,
    OutOfOrderSequence,
    TopicIdMismatch,
    UnknownPartition,
    UnknownTopic,
)
from leadline_client.wire import TopicPartition
from leadline_common.rpc import MSGPACK
from tests.runtime_simulation.messages import (
    PRODUCE_PATH,
    PRODUCER_ID_PATH,
    Produce,
    Produced,
    ProducerId,
)
from tests.runtime_simulation.network import Network
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.topics import Topics, name_of
from tests.runtime_simulation.world import World
from tests.support.checks.history import History

TIMEOUT_MS = 800
_T = TypeVar("_T")
_NO_SUCH_TOPIC = (TopicIdMismatch, UnknownTopic, UnknownPartition)


class TopicGone(Exception):
    """The topic that a request names by its id is no more, or not this partition of it."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record to send."""

    value: bytes
    key: bytes | None = None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(eq=False)
class Client:
    """Sends requests about one partition to whichever broker says that it leads.

    `problems` are the answers that it must never get.
    """

    world: World
    network: Network
    history: History
    topics: Topics
    number: int
    topic: str
    partition: int
    brokers: list[str]
    problems: list[str] = field(default_factory=list, init=False)
    _leader: str = field(default="", init=False)

    @property
    def place(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    def of(self, partition: TopicPartition) -> bool:
        """Tell whether this is a client of a partition."""
        return partition == (self.topic, self.partition)

    async def ask_once(
        self,
        path: str,
        body: bytes,
        kind: type[_T],
        *,
        repeatable: bool = True,
        on_repeat: Callable[[], object] | None = None,
    ) -> _T:
        """Send a request to the leader that is known.

        Raises:
            LeadlineError: it was refused, or its outcome is unknown.

        """
        to = self._leader or self.world.random.choice(self.brokers)
        try:
            answer = await self.network.post(
                to,
                path,
                body,
                MSGPACK,
                TIMEOUT_MS / 1000 * 1.5,
                repeatable=repeatable,
                on_repeat=on_repeat,
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
class Writer(Client):
    """Appends records until it is stopped; `role` is part of the name of its process."""

    role: ClassVar[str]
    pause_s: float
    on_acknowledged: Callable[[Client], object]
    acked: int = field(default=0, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _stopping: bool = field(default=False, init=False)

    def start(self) -> None:
        """Start the process."""
        self._task = self.world.loop.in_process(Process(f"{self.role}-{self.number}"), self._run())

    def stop(self) -> None:
        """Write nothing new any more."""
        self._stopping = True

    @property
    def busy(self) -> bool:
        """Whether the outcome of a batch is still open."""
        return self._task is not None and not self._task.done()

    async def _run(self) -> None:
        """Write until `_stopping`."""
        raise NotImplementedError


@dataclass(eq=False, kw_only=True)
class Producer(Writer):
    """Sends one batch after another.

    With `states_epoch` it states the leader epoch in which it means to append. So a batch for a
    partition that was removed cannot come into the next one of its number.
    """

    role = "producer"
    idempotent: bool
    states_epoch: bool
    lost_records: Callable[[str, int], object] = lambda *_: False
    """Tells whether an unclean election may have lost records of a partition."""
    sent: int = field(default=0, init=False)
    offsets: dict[str, list[int]] = field(default_factory=dict, init=False)
    """The acknowledged offsets, by the history's name of the partition."""
    placed: list[tuple[str, str, int, int]] = field(default_factory=list, init=False)
    """Of each acknowledged record that name, its value, its offset and its leader's epoch."""
    _sequence: int = field(default=0, init=False)
    _producer_id: int = field(default=-1, init=False)
    _topic_id: str = field(default="", init=False)
    _name: str = field(default="", init=False)
    """What the history calls the partition."""
    _unknown: OutcomeUnknown | None = field(default=None, init=False)
    """Why the present request may have taken effect, although an answer to it was a refusal."""

    async def _run(self) -> None:
        while not self._stopping:
            await asyncio.sleep(self.world.between(0, 2 * self.pause_s))
            if not self._topic_id:
                self._find_topic()
            if self._topic_id:
                await self._send_batch(1 + self.world.random.randrange(3))

    def _find_topic(self) -> None:
        """Adopt the topic that has the name now, if it has this partition."""
        topic, name = self.topics.assignment(self.topic), self.topics.name_now(self.place)
        if topic is None or self.partition not in topic.partitions:
            return
        if name or not self.states_epoch:
            self._name = name or name_of(self.topic, topic.topic_id)
            self._topic_id = topic.topic_id
            self._producer_id = -1

    async def _send_batch(self, count: int) -> None:
        if self.idempotent and self._producer_id < 0 and not await self._get_producer_id():
            return
        values = [f"p{self.number}-{self.sent + index}" for index in range(count)]
        self.sent += count
        for value in values:
            self.history.send(value, self._name, self.partition, self.number)
        batch = self._encoded(values)
        try:
            produced = await self._ask(PRODUCE_PATH, partial(self._request, batch), Produced)
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
            self.placed.append((self._name, value, offset, produced.leader_epoch))
        self.offsets.setdefault(self._name, []).extend(
            range(produced.base_offset, produced.base_offset + count)
        )
        self.acked += count
        self.on_acknowledged(self)

    async def _get_producer_id(self) -> bool:
        """Ask for a producer id; return False if the topic was deleted meanwhile."""
        try:
            answer = await self._ask(PRODUCER_ID_PATH, lambda: b"\x80", ProducerId)
        except (OutcomeUnknown, TopicGone):
            self._topic_id = ""
            return False
        self._producer_id, self._sequence = answer.id, 0
        return True

    def _encoded(self, values: list[str]) -> bytes:
        return batches.encode(
            [Record(value.encode()) for value in values],
            now_ms=int(time.time() * 1000),
            producer_id=self._producer_id,
            producer_epoch=0 if self.idempotent else -1,
            base_sequence=self._sequence if self.idempotent else -1,
        )

    def _request(self, batch: bytes) -> bytes:
        state = self.topics.state(self.place) if self.states_epoch else None
        epoch = None if state is None else state.leader_epoch
        return msgspec.msgpack.encode(
            Produce(self.topic, self.partition, batch, TIMEOUT_MS, self._topic_id, epoch)
        )

    async def _ask(self, path: str, encoded: Callable[[], bytes], kind: type[_T]) -> _T:
        """Send until it is known that it took effect; an unknown outcome ends it.

        An idempotent producer sends after an unknown outcome, too.

        Raises:
            OutcomeUnknown: it may have taken effect, and must not be repeated.
            TopicGone: the topic was deleted, and nothing was appended.

        """
        self._unknown = None
        while True:
            if self.states_epoch and self.topics.name_now(self.place) != self._name:
                self.world.reached("a producer met a removed partition")
                self._note_deleted()
            try:
                return await self.ask_once(
                    path,
                    encoded(),
                    kind,
                    repeatable=self.idempotent,
                    on_repeat=self._note_copy,
                )
            except OutcomeUnknown as problem:
                if not self.idempotent:
                    raise
                self._unknown = problem
            except OutOfOrderSequence:
                if self.lost_records(self._name, self.partition):
                    self.world.reached("a producer began again after an unclean election")
                    self._note_deleted()
            except _NO_SUCH_TOPIC:
                if self.topics.id_of(self.topic) != self._topic_id:
                    self.world.reached("a producer met a deleted topic")
                    self._note_deleted()
            except LeadlineError as refusal:
                del refusal  # nothing was appended
            await self.pause()

    def _note_copy(self) -> None:
        self._unknown = OutcomeUnknown("a copy of the request may have been accepted")

    def _note_deleted(self) -> None:
        """End a request to a topic that was deleted, or to a partition that was removed.

        So ends one that follows records that are lost; what comes next has another producer id.
        """
        if self._unknown is not None:
            self._topic_id = ""
            raise self._unknown
        raise TopicGone
