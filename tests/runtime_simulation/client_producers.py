"""Producers of the client library: its own batches, retries and search for leaders."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from leadline_client.client import AsyncClient
from leadline_client.errors import LeadlineError, OutcomeUnknown
from leadline_client.producer import AsyncProducer
from leadline_client.producer_settings import ProducerSettings
from leadline_client.retry import RetryPolicy
from leadline_client.security import Security
from leadline_client.sent_records import RecordMetadata
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.topics import Topics, name_of
from tests.runtime_simulation.web import Web, WebTransport
from tests.runtime_simulation.world import World
from tests.support.checks.history import History

POLICY: Final = RetryPolicy(
    timeout_s=6.0, request_timeout_s=1.0, metadata_timeout_s=0.5, longest_pause_s=0.2
)
"""Impatient, because a run is short."""

_MOST_RECORDS: Final = 6


def new_client(web: Web, brokers: list[str]) -> AsyncClient:
    """Return a client of simulated brokers, which are named by their hosts."""
    addresses = [f"http://{broker}" for broker in brokers]
    transport = WebTransport(web)
    return AsyncClient(addresses, policy=POLICY, transport=transport, security=Security())


@dataclass(eq=False)
class ClientProducer:
    """Sends records to the partitions of one incarnation of a topic, but the one `without`.

    The library names topics by their names only. So whoever deletes the topic stops the producer
    before, and waits until it has `ended`.
    """

    world: World
    web: Web
    history: History
    topics: Topics
    number: int
    topic: str
    brokers: list[str]
    idempotent: bool
    pause_s: float
    without: int = -1
    acked: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list), init=False)
    """The acknowledged offsets of each partition."""
    stopped: bool = field(default=False, init=False)
    topic_id: str = field(default="", init=False)
    _sent: int = field(default=0, init=False)
    _open: int = field(default=0, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)

    @property
    def count(self) -> int:
        """How many records were acknowledged."""
        return sum(map(len, self.acked.values()))

    @property
    def busy(self) -> bool:
        """Whether the outcome of a record is still open."""
        return self._task is not None and (not self._task.done() or self._open > 0)

    def start(self) -> None:
        """Start the producer's process."""
        self.topic_id = self.topics.id_of(self.topic) or ""
        process = Process(f"client-producer-{self.number}")
        self._task = self.world.loop.in_process(process, self._run())

    def stop(self) -> None:
        """Send nothing new any more."""
        self.stopped = True

    async def ended(self) -> None:
        """Wait until it has ended, after `stop`."""
        assert self._task is not None
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        settings = ProducerSettings(
            idempotent=self.idempotent,
            linger_ms=20.0,
            batch_bytes=60,
            delivery_timeout_s=POLICY.timeout_s,
            metadata_max_age_s=2.0,
        )
        random = self.world.random.random
        client = new_client(self.web, self.brokers)
        producer = AsyncProducer[bytes, bytes](client, settings, random=random)
        while not self.stopped:
            await asyncio.sleep(self.world.between(0, 2 * self.pause_s))
            for _ in range(1 + self.world.random.randrange(_MOST_RECORDS)):
                await self._send(producer)
        await producer.aclose()

    async def _send(self, producer: AsyncProducer[bytes, bytes]) -> None:
        topic = self.topics.assignment(self.topic)
        assert topic is not None
        partition = self.world.random.choice(sorted(topic.partitions.keys() - {self.without}))
        value = f"c{self.number}-{self._sent}"
        self._sent += 1
        self.history.send(value, name_of(self.topic, self.topic_id), partition, self.number)
        try:
            future = await producer.send(self.topic, value.encode(), partition=partition)
        except LeadlineError:  # A partition is so new that no broker knows it.
            self.history.refuse(value)
            return
        self._open += 1
        future.add_done_callback(partial(self._done, value, partition))

    def _done(self, value: str, partition: int, future: asyncio.Future[RecordMetadata]) -> None:
        self._open -= 1
        try:
            offset = future.result().offset
        except OutcomeUnknown:
            self.world.reached("the client library reported an unknown outcome")
            self.history.give_up(value)
        except LeadlineError:
            self.world.reached("the client library reported a refusal")
            self.history.refuse(value)
        else:
            self.history.ack(value, offset)
            self.acked[partition].append(offset)
