"""Producers of unique values, with acks=all: idempotent ones that repeat, and others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from leadline_client import batches
from leadline_client.errors import LeadlineError, OutcomeUnknown
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
from tests.runtime_simulation.world import World
from tests.support.checks.history import History

TIMEOUT_MS = 800
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Record:
    """A record to send."""

    value: bytes
    key: bytes | None = None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(eq=False)
class Producer:
    """Sends one batch after another to one partition, to whichever broker says it leads."""

    world: World
    network: Network
    history: History
    number: int
    topic: str
    partition: int
    brokers: list[str]
    pause_s: float
    idempotent: bool
    on_acknowledged: Callable[[Producer], object]
    acked: int = field(default=0, init=False)
    sent: int = field(default=0, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _stopping: bool = field(default=False, init=False)
    _leader: str = field(default="", init=False)
    _sequence: int = field(default=0, init=False)
    _producer_id: int = field(default=-1, init=False)

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
            await self._send_batch(1 + self.world.random.randrange(3))

    async def _send_batch(self, count: int) -> None:
        if self.idempotent and self._producer_id < 0:
            self._producer_id = (await self._ask(PRODUCER_ID_PATH, b"\x80", ProducerId)).id
            self._sequence = 0
        values = [f"p{self.number}-{self.sent + index}" for index in range(count)]
        self.sent += count
        for value in values:
            self.history.send(value, self.topic, self.partition, self.number)
        try:
            produced = await self._ask(PRODUCE_PATH, self._encoded(values), Produced)
        except OutcomeUnknown:
            for value in values:
                self.history.give_up(value)
            return
        self._sequence += count
        for offset, value in enumerate(values, produced.base_offset):
            self.history.ack(value, offset)
        self.acked += count
        self.on_acknowledged(self)

    def _encoded(self, values: list[str]) -> bytes:
        batch = batches.encode(
            [Record(value.encode()) for value in values],
            now_ms=1,
            producer_id=self._producer_id,
            producer_epoch=0 if self.idempotent else -1,
            base_sequence=self._sequence if self.idempotent else -1,
        )
        return msgspec.msgpack.encode(Produce(self.topic, self.partition, bytes(batch), TIMEOUT_MS))

    async def _ask(self, path: str, body: bytes, kind: type[_T]) -> _T:
        """Send until it is known that it took effect; an unknown outcome ends it.

        An idempotent producer sends after an unknown outcome, too.

        Raises:
            OutcomeUnknown: it may have taken effect, and must not be repeated.

        """
        while True:
            to = self._leader or self.world.random.choice(self.brokers)
            try:
                answer = await self.network.post(
                    to, path, body, MSGPACK, TIMEOUT_MS / 1000 * 1.5, repeatable=self.idempotent
                )
            except OutcomeUnknown:
                self._leader = ""
                if not self.idempotent:
                    raise
                await asyncio.sleep(self.world.between(0.01, 0.1))
            except LeadlineError as refusal:
                self._follow(refusal)
                await asyncio.sleep(self.world.between(0.01, 0.1))
            else:
                self._leader = to
                return msgspec.msgpack.decode(answer, type=kind)

    def _follow(self, refusal: LeadlineError) -> None:
        hint = refusal.leader
        named = f"broker-{hint.id}" if hint is not None and hint.id >= 0 else ""
        self._leader = named if named != self._leader else ""
