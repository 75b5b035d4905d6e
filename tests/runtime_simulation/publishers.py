"""Applications that publish numbered batches exactly once, with drivers that start again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from leadline_client import batches
from leadline_client.errors import (
    LeadlineError,
    OutcomeUnknown,
    PublishMismatch,
    PublishOutOfOrder,
    UnknownStaged,
)
from tests.runtime_simulation.messages import (
    PUBLISH_PATH,
    STAGE_PATH,
    Publish,
    Published,
    Stage,
    Staged,
)
from tests.runtime_simulation.workload import TIMEOUT_MS, Record, TopicGone, Writer

STAGED_AGAIN = "an application staged again what no replica had"
STARTED_AGAIN = "an application started again within a batch"
REPEATED = "an application repeated a published batch"
MET_DELETED = "an application met a deleted topic within a batch"
BEGAN_AGAIN = "an application published its first batch to a topic that was created again"
KNOWN = "a published batch was recognized"
_LONGEST_PAUSE_S = 1.5


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of an application: the values of its records, by upload and by piece."""

    number: int
    uploads: tuple[tuple[tuple[str, ...], ...], ...]

    @property
    def values(self) -> list[str]:
        """The values of all records, in the order of the log."""
        return [value for upload in self.uploads for piece in upload for value in piece]


@dataclass(eq=False, kw_only=True)
class Publisher(Writer):
    """An application that publishes one batch after another to a partition, as a Spark query does.

    It repeats a batch until that is published, with what it has staged or, as a driver that starts
    again, with the same records staged once more. Sometimes it repeats one that is published, the
    latest or the one before. `keeps_all` says that no retention removes records: it may have
    removed some of a batch whose offsets are not known.

    Once its topic is another one, the outcome of a batch for the former one stays unknown, and it
    begins with other records. The next topic must not know it, whatever numbers it has used.
    """

    role = "publisher"
    keeps_all: bool
    _may_be_published: bool = field(default=False, init=False)
    """Whether an earlier attempt of the present batch may have taken effect."""
    _name: str = field(default="", init=False)
    """What the history calls the partition to which it publishes; empty while there is none."""
    _life: int = field(default=-1, init=False)
    """How many topics it has published to before."""

    async def _run(self) -> None:
        while not self._stopping:
            self._name = self.topics.name_now(self.place)
            if not self._name:
                await self.pause()
                continue
            self._life += 1
            try:
                await self._publish_all()
            except TopicGone:
                self.world.reached(MET_DELETED)

    async def _publish_all(self) -> None:
        """Publish one batch after another, until the topic is another one at most."""
        before: Batch | None = None
        # It may go on with its numbers, or restart them.
        number = self.world.random.choice((0, 100 * self._life)) if self._life else 0
        while not self._stopping:
            await asyncio.sleep(self.world.between(0, 2 * self.pause_s))
            batch = self._new_batch(number)
            await self._publish_new(batch)
            if self._life and before is None:
                self.world.reached(BEGAN_AGAIN)
            chance = self.world.random.random()
            if chance < 0.2:
                await self._repeat(batch, is_latest=True)
            elif chance < 0.3 and before is not None:
                await self._repeat(before, is_latest=False)
            before, number = batch, number + self.world.random.choice((1, 1, 3))

    def _require_topic(self) -> None:
        """Look whether the topic, or the partition, is still the one that it publishes to.

        What was staged in it is not known to the next one. So no request reaches another topic that
        could publish there.

        Raises:
            TopicGone: it is not.

        """
        if self.topics.name_now(self.place) != self._name:
            raise TopicGone

    def _new_batch(self, number: int) -> Batch:
        random = self.world.random

        def piece(name: str) -> tuple[str, ...]:
            return tuple(f"{name}-{index}" for index in range(random.randint(1, 3)))

        def upload(name: str) -> tuple[tuple[str, ...], ...]:
            return tuple(piece(f"{name}-{index}") for index in range(random.randint(1, 8)))

        life = f"-{self._life}" if self._life else ""
        name = f"a{self.number}{life}-{number}"
        uploads = (upload(f"{name}-{index}") for index in range(random.randint(1, 2)))
        return Batch(number, tuple(uploads))

    async def _publish_new(self, batch: Batch) -> None:
        values, place = batch.values, (self._name, self.partition)
        row = self.history.send_batch(values, place, self.number)
        self._may_be_published = False
        try:
            published = await self._until_published(batch)
        except TopicGone:
            if self._may_be_published:
                self.history.give_up_batch(row)
            else:
                self.history.refuse_batch(row)
            raise
        if published.duplicate and not self._may_be_published:
            self.problems.append(f"batch {batch.number} of {self._app} is new, and a duplicate")
        base, last = published.base_offset, published.last_offset
        if last is None:
            self.problems.append(f"batch {batch.number} of {self._app} is not the latest")
        # Records of others may be between the pieces of a batch that a new leader completed.
        is_whole = base is not None and last is not None and last - base + 1 == len(values)
        if is_whole or self.keeps_all:
            self.history.ack_batch(row, base if is_whole else None)
        else:
            self.history.give_up_batch(row)
        self.acked += len(values)
        self.on_acknowledged(self)

    async def _repeat(self, batch: Batch, *, is_latest: bool) -> None:
        """Publish again what is published, by whoever leads then: it must be recognized."""
        self.world.reached(REPEATED)
        await asyncio.sleep(self.world.between(0, _LONGEST_PAUSE_S))
        published = await self._until_published(batch)
        if not published.duplicate:
            self.problems.append(f"batch {batch.number} of {self._app} was published again")
        if (published.last_offset is not None) is not is_latest:
            self.problems.append(f"batch {batch.number} of {self._app}: {published}")

    async def _until_published(self, batch: Batch) -> Published:
        staged: tuple[str, ...] = ()
        while True:
            try:
                if not staged:
                    self._require_topic()
                    staged = await self._stage(batch)
                self._require_topic()
                published = await self._publish(batch.number, staged)
            except UnknownStaged:
                self.world.reached(STAGED_AGAIN)
                staged = ()
            except OutcomeUnknown:
                if self.world.random.random() < 0.3:
                    self.world.reached(STARTED_AGAIN)
                    staged = ()
            except (PublishMismatch, PublishOutOfOrder) as refusal:
                self.problems.append(f"batch {batch.number} of {self._app}: {refusal!r}")
            except LeadlineError as refusal:
                del refusal  # nothing was appended
            else:
                if published.duplicate:
                    self.world.reached(KNOWN)
                return published
            await self.pause()

    @property
    def _app(self) -> str:
        return f"app-{self.number}"

    async def _stage(self, batch: Batch) -> tuple[str, ...]:
        """Stage all uploads of a batch; return their ids."""
        found = []
        for upload in batch.uploads:
            content = b"".join(map(_encoded, upload))
            request = msgspec.msgpack.encode(Stage(self.topic, self.partition, content))
            found.append((await self.ask_once(STAGE_PATH, request, Staged)).staged_id)
        return tuple(found)

    async def _publish(self, number: int, staged: tuple[str, ...]) -> Published:
        request = Publish(self.topic, self.partition, self._app, number, staged, TIMEOUT_MS)
        try:
            return await self.ask_once(
                PUBLISH_PATH,
                msgspec.msgpack.encode(request),
                Published,
                on_repeat=self._note_attempt,
            )
        except OutcomeUnknown:
            self._note_attempt()
            raise

    def _note_attempt(self) -> None:
        self._may_be_published = True


def _encoded(values: Sequence[str]) -> bytes:
    records = [Record(value.encode()) for value in values]
    return batches.encode(records, now_ms=int(time.time() * 1000))
