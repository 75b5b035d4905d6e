"""A steady acks=all load of unique values over all partitions of a topic, fully recorded.

Half of the writers are idempotent: they send a batch again after an unknown
outcome. The others never do. So neither kind may ever leave a value twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Self

from leadline_client import batches
from leadline_client.accumulator import ProducerSequence, needs_new_producer_id
from leadline_client.client import AsyncClient
from leadline_client.errors import (
    LeadershipLost,
    LeadlineError,
    OffsetOutOfRange,
    OutcomeUnknown,
)
from leadline_client.payloads import OutgoingRecord, ProducerIdentity
from leadline_client.retry import RetryPolicy
from leadline_client.security import Security
from leadline_client.wire import ProduceResult
from tests.support.checks.history import Consumer, History, Read
from tests.support.checks.recovered_tails import crc_problems
from tests.support.checks.sends import Outcome
from tests.support.services.cluster import wait_until

IMPATIENT = RetryPolicy(
    timeout_s=10.0, request_timeout_s=1.5, metadata_timeout_s=1.0, longest_pause_s=0.2
)
"""For a load under faults: an attempt at a frozen broker is given up soon."""

_END_PERIOD_S = 0.5
_FETCH_BYTES = 4 << 20
_FILLER = b"." * 80
_ANONYMOUS = ProducerIdentity(batches.NO_PRODUCER_ID, -1)


@dataclass(frozen=True, slots=True)
class Ack:
    """One acknowledged batch; `at_s`, and when it was first sent, are on the monotonic clock."""

    partition: int
    base_offset: int
    leader_epoch: int
    count: int
    duplicate: bool
    at_s: float
    sent_s: float = 0.0


@dataclass(slots=True)
class Load:
    """Writers and tailing readers of one topic, started on entry and stopped on exit.

    `rate` is what is offered, in records per second over all partitions. `label`
    tells the values of one load from those of another.
    """

    bootstrap: str | Sequence[str]
    topic: str
    partitions: int
    rate: int = 2400
    batch_size: int = 100
    label: str = ""
    security: Security | None = None
    history: History = field(default_factory=History)
    acks: list[Ack] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)
    left_behind: int = 0
    """Batches of writers that never send again, which a new leader had not received yet."""
    tails: list[Tail] = field(default_factory=list)
    _client: AsyncClient = field(init=False)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._client = AsyncClient(self.bootstrap, policy=IMPATIENT, security=self.security)
        self.tails = [
            Tail(
                self.topic,
                number,
                consumer=self.history.consumer(f"{self.label}reader of {number}"),
            )
            for number in range(min(2, self.partitions))
        ]

    @property
    def acknowledged(self) -> int:
        """How many records have been acknowledged so far."""
        return sum(ack.count for ack in self.acks)

    def acknowledged_in(self, partition: int) -> int:
        """How many records of one partition have been acknowledged so far."""
        return sum(ack.count for ack in self.acks if ack.partition == partition)

    async def progress(self, partitions: Sequence[int] | None = None, records: int = 200) -> None:
        """Wait until each of `partitions` (None: all) has acknowledged `records` more."""
        numbers = range(self.partitions) if partitions is None else partitions
        goals = {number: self.acknowledged_in(number) + records for number in numbers}

        async def reached() -> bool:
            self._raise_failures()
            return all(self.acknowledged_in(number) >= goal for number, goal in goals.items())

        await wait_until(reached, f"{records} more acks in partitions {list(numbers)}")

    async def stop(self) -> None:
        """End the load: what is in flight gets its outcome first. Idempotent."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        try:
            await asyncio.gather(*self._tasks)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._client.aclose()

    def longest_silence_s(self, partition: int) -> float:
        """Return the longest time without an acknowledgement in a partition."""
        times = [ack.at_s for ack in self.acks if ack.partition == partition]
        return max((after - before for before, after in pairwise(times)), default=0.0)

    def summary(self) -> str:
        """Say in one line how the sends ended, and the longest time without an ack."""
        past = self.history
        errors = ", ".join(f"{count} {name}" for name, count in sorted(self.errors.items()))
        return (
            f"{past.count()} records sent, {past.count(Outcome.ACKED)} acknowledged, "
            f"{past.count(Outcome.REFUSED)} refused, {past.count(Outcome.UNKNOWN)} unknown "
            f"({errors or 'no error'}, "
            f"{self.left_behind} left behind); "
            f"longest silence {max(map(self.longest_silence_s, range(self.partitions))):.1f} s"
        )

    async def __aenter__(self) -> Self:
        for number in range(self.partitions):
            self._tasks.append(asyncio.create_task(self._write(number)))
        for tail in self.tails:
            self._tasks.append(asyncio.create_task(tail.follow(self._client, self._stopping)))
            self._tasks.append(asyncio.create_task(tail.watch_end(self._client, self._stopping)))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _raise_failures(self) -> None:
        for task in self._tasks:
            if task.done() and not task.cancelled() and (failure := task.exception()):
                raise failure

    async def _write(self, partition: int) -> None:
        period_s = self.batch_size * self.partitions / self.rate
        writer = _Writer(self, partition, idempotent=partition % 2 == 0)
        due_s = time.monotonic()
        while not self._stopping.is_set():
            await writer.send_batch()
            # After a stall the load goes on at its rate, not with all that it missed.
            due_s = max(due_s + period_s, time.monotonic() - period_s)
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))

    async def append(
        self, partition: int, values: Sequence[str], numbering: ProducerSequence | None
    ) -> ProduceResult:
        """Send one batch, by the client that all writers share."""
        identity = numbering.identity if numbering else _ANONYMOUS
        octets = batches.encode(
            [OutgoingRecord(value.encode() + _FILLER) for value in values],
            now_ms=time.time_ns() // 1_000_000,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=numbering.next_sequence if numbering else batches.NO_SEQUENCE,
        )
        return await self._client.produce_batches(
            self.topic, partition, octets, idempotent=numbering is not None
        )

    async def new_numbering(self) -> ProducerSequence:
        """Return a fresh producer identity."""
        return ProducerSequence(await self._client.new_producer_id())


class _Writer:
    """Sends batches of one partition one after another and notes how each ended."""

    def __init__(self, load: Load, partition: int, *, idempotent: bool) -> None:
        self._load = load
        self._partition = partition
        self._idempotent = idempotent
        self._producer = f"{load.label}{partition}"
        self._numbering: ProducerSequence | None = None
        self._sent = 0

    async def send_batch(self) -> None:
        if self._idempotent and self._numbering is None:
            try:
                self._numbering = await self._load.new_numbering()
            except LeadlineError as error:
                self._count(error)
                return
        history = self._load.history
        numbers = range(self._sent, self._sent + self._load.batch_size)
        self._sent = numbers.stop
        values = [f"{self._load.label}{self._partition}/{number}" for number in numbers]
        place = (self._load.topic, self._partition)
        send = history.send_batch(values, place, self._producer, time.monotonic())
        try:
            result = await self._load.append(self._partition, values, self._numbering)
        except LeadlineError as error:
            if isinstance(error, LeadershipLost) and not self._idempotent:
                self._load.left_behind += 1
            else:
                self._count(error)
            is_unknown = isinstance(error, OutcomeUnknown)
            note = history.give_up_batch if is_unknown else history.refuse_batch
            note(send, time.monotonic())
            if needs_new_producer_id(error):
                self._numbering = None
            return
        self._acknowledged(send, len(values), result)

    def _acknowledged(self, send: int, count: int, result: ProduceResult) -> None:
        self._load.history.ack_batch(send, result.base_offset, time.monotonic())
        if self._numbering is not None:
            self._numbering.advance(count)
        self._load.acks.append(
            Ack(
                self._partition,
                result.base_offset,
                result.leader_epoch,
                result.count,
                result.duplicate,
                time.monotonic(),
                self._load.history.sends.began_s[send],
            )
        )

    def _count(self, error: LeadlineError) -> None:
        name = type(error).__name__
        self._load.errors[name] = self._load.errors.get(name, 0) + 1


@dataclass(slots=True)
class Tail:
    """A reader at the end of one partition: what it has seen must stay true for ever.

    A `consumer` notes its polls in a history; `records` are kept without one.
    """

    topic: str
    partition: int
    records: list[tuple[int, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    consumer: Consumer | None = None
    _offset: int = 0

    async def follow(self, client: AsyncClient, stopping: asyncio.Event) -> None:
        """Read until `stopping`, through all changes of leaders."""
        while not stopping.is_set():
            try:
                await self.read_on(client, wait_ms=300)
            except OffsetOutOfRange as error:
                # Only committed records are shown, so the log can never end before them.
                self.problems.append(
                    f"{self.topic}-{self.partition}: a reader at {self._offset} was told: {error}"
                )
                return
            except LeadlineError:
                await asyncio.sleep(0.05)

    async def read_on(self, client: AsyncClient, wait_ms: int = 0) -> int:
        """Read once and return the high watermark that came with the answer."""
        answer = await client.fetch_batches(
            self.topic, self.partition, self._offset, max_bytes=_FETCH_BYTES, wait_ms=wait_ms
        )
        self.problems += crc_problems(answer.batches, f"{self.topic}-{self.partition}")
        records = [
            (record.offset, value_of(record.value))
            for record in batches.decode(answer.batches)
            if record.offset >= self._offset
        ]
        if self.consumer is None:
            self.records += records
        else:
            self.consumer.poll((self.topic, self.partition), records, time.monotonic())
        self._offset = answer.next_offset
        return answer.high_watermark

    async def watch_end(self, client: AsyncClient, stopping: asyncio.Event) -> None:
        """Note the latest offset that clients are told, until `stopping` (I8).

        The high watermark of a fetch is no promise: a new leader may not know yet what its
        predecessor has committed, and then refuses to say the latest offset (KIP-207).
        """
        assert self.consumer is not None
        while not stopping.is_set():
            began_s = time.monotonic()
            with contextlib.suppress(LeadlineError):
                end = (await client.offsets(self.topic, self.partition)).high_watermark
                self.consumer.history.ends.add(
                    (self.topic, self.partition),
                    end,
                    began_s,
                    time.monotonic(),
                    self.consumer.name,
                )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), _END_PERIOD_S)

    async def read_to_end(self, client: AsyncClient) -> None:
        """Read all that is left: from now on nothing may be unseen."""
        while await self.read_on(client) > self.next_offset:
            pass
        if self.consumer is not None:
            self.consumer.finished([(self.topic, self.partition)])

    def as_read(self, source: str) -> Read:
        """Return what was read, for `History.check`."""
        return Read((self.topic, self.partition), self.records, source)

    @property
    def next_offset(self) -> int:
        """Where the reader stands."""
        return self._offset


def value_of(stored: bytes | None) -> str:
    """Return the value that a writer of `Load` meant."""
    return (stored or b"").removesuffix(_FILLER).decode(errors="replace")


async def read_partition(client: AsyncClient, topic: str, partition: int) -> Read:
    """Read a partition from its start to its high watermark, from its leader."""
    tail = Tail(topic, partition)
    await tail.read_to_end(client)
    assert not tail.problems, tail.problems
    return tail.as_read("final reader")
