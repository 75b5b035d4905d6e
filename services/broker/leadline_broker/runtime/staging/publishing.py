"""Publishing staged batches exactly once; the log itself records what was published.

Per partition, one publish at a time reads, checks and appends; publishes wait for the in-sync
replicas concurrently. The decisions are in `domain.publishes`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from leadline_broker.domain.publishes import (
    MOST_PIECES,
    AppendFrom,
    Published,
    Publishes,
    piece_epoch,
    publisher_id,
)
from leadline_broker.domain.state import ReplicaKey
from leadline_broker.runtime.metrics import BrokerMetrics
from leadline_broker.runtime.replication.partition import Partition
from leadline_broker.runtime.replication.remembered_producers import RememberedProducers
from leadline_broker.runtime.serving.serving import Serving
from leadline_broker.runtime.staging.staging import StagedUpload, Staging
from leadline_client.batch_header import BatchHeader, parse_headers
from leadline_client.batches import stamp_producer, validate
from leadline_client.errors import (
    CorruptBatch,
    InvalidRequest,
    LeadershipLost,
    LeadlineError,
    UnknownStaged,
)

_APPEND_BYTES: Final = 64 * 1024 * 1024
"""A batch of up to this size is appended at once, a larger one in groups of this size."""


@dataclass(frozen=True, slots=True)
class PublishedBatch:
    """The offsets of a published batch, inclusive; None if those of a duplicate are unknown.

    `last_offset` is None if and only if a later batch of the application is in the log.
    """

    base_offset: int | None
    last_offset: int | None
    leader_epoch: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class ApplicationBatch:
    """A batch of an application that is being published to a partition."""

    partition: Partition
    leader_epoch: int
    publisher: int
    number: int

    @property
    def publishes(self) -> Publishes:
        """The publishes in the log."""
        return self.partition.log.producers.publishes


class Publishing:
    """Publishes to the partitions that this broker leads. Owned by the event loop."""

    def __init__(
        self,
        serving: Serving,
        staging: Staging,
        producers: RememberedProducers,
        *,
        metrics: BrokerMetrics,
    ) -> None:
        self._serving = serving
        self._producers = producers
        self._staging = staging
        self._metrics = metrics
        self._locks: WeakValueDictionary[ReplicaKey, asyncio.Lock] = WeakValueDictionary()

    async def publish(
        self, topic: str, number: int, app: str, batch: int, staged: Sequence[str], timeout_ms: int
    ) -> PublishedBatch:
        """Append staged uploads as a batch of `app`, unless it is in the log, and wait as acks=all.

        Raises:
            UnknownStaged, PublishMismatch, PublishOutOfOrder, NotEnoughReplicas,
            TooManyProducers, InvalidRequest, StorageFailed, and the errors of `Serving.led`:
                nothing was appended.
            RequestTimedOut, NotEnoughReplicasAfterAppend, LeadershipLost: the outcome is
                unknown; repeating the publish resolves it.

        """
        key = self._serving.led(topic, number).key
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            await self._serving.repairs.know_producers(
                self._serving.led(topic, number), publisher_id(app)
            )
            partition = self._serving.led(topic, number)
            epoch = partition.replica.state.leader_epoch
            to_publish = ApplicationBatch(partition, epoch, publisher_id(app), batch)
            found = to_publish.publishes.settled(to_publish.publisher, batch)
            if found is None:
                await self._append_staged(to_publish, staged)
                found = to_publish.publishes.settled(to_publish.publisher, batch)
                duplicate = False
            else:
                duplicate = True
            if not isinstance(found, Published):
                if isinstance(found, LeadlineError):
                    raise found
                raise LeadershipLost("leadership moved while the batch was being published")
        # A duplicate that a new leader finds in its log may not be committed yet.
        await self._serving.committed(partition, found.end_offset, timeout_ms)
        self._staging.discard_everywhere(partition, staged)
        self._metrics.published(duplicate=duplicate)
        return PublishedBatch(found.base_offset, found.last_offset, epoch, duplicate)

    async def _append_staged(self, batch: ApplicationBatch, staged: Sequence[str]) -> None:
        """Append the uploads; copy missing or damaged ones from another replica first."""
        batch.partition.replica.leading().check_append(all_replicas=True)
        try:
            await self._append_present(batch, staged)
        except UnknownStaged:
            await self._staging.recover(batch.partition, staged)
            await self._append_present(batch, staged)

    async def _append_present(self, batch: ApplicationBatch, staged: Sequence[str]) -> None:
        with self._staging.pinned(batch.partition.key, staged) as uploads:
            groups = _groups(uploads)
            counts: list[int] = []
            for group in groups:
                data = await self._load(batch.partition.key, group)
                counts += [header.record_count for header in parse_headers(data)]
            first = self._first_piece(batch, counts)
            await self._append_groups(batch, groups, data, first, len(counts))

    def _first_piece(self, batch: ApplicationBatch, counts: Sequence[int]) -> int:
        if len(counts) > MOST_PIECES:
            raise InvalidRequest(f"{len(counts)} record batches; at most {MOST_PIECES} are allowed")
        verdict = batch.publishes.check(batch.publisher, batch.number, counts)
        if isinstance(verdict, LeadlineError):
            raise verdict
        if batch.publishes.latest(batch.publisher) is None:
            self._producers.admit_application()
        return verdict.piece if isinstance(verdict, AppendFrom) else len(counts)

    async def _append_groups(
        self,
        batch: ApplicationBatch,
        groups: Sequence[Sequence[StagedUpload]],
        last: bytearray,
        first: int,
        pieces: int,
    ) -> None:
        """Append the pieces from `first` on; `last` is the content of the last group."""
        position, appended = 0, False
        for group in groups:
            try:
                is_last = group is groups[-1]
                data = last if is_last else await self._load(batch.partition.key, group)
                count = sum(1 for _ in parse_headers(data))
                skip = max(0, first - position)
                if skip < count:
                    data = await asyncio.to_thread(_stamped, data, batch, position, skip, pieces)
                    self._append(batch, data)
                    appended = True
                position += count
            except LeadlineError as error:
                if not appended:
                    raise
                raise LeadershipLost(f"the batch was published in part: {error.message}") from error

    def _append(self, batch: ApplicationBatch, data: bytearray) -> None:
        """Append, if this broker still leads the partition in the same epoch."""
        partition = batch.partition
        led = self._serving.led(partition.topic, partition.partition, batch.leader_epoch)
        if led is not partition:
            raise LeadershipLost("the partition was removed meanwhile")
        partition.replica.leading().check_append(all_replicas=True)
        headers = list(parse_headers(data))
        self._serving.append(partition, data, headers, batch.leader_epoch)
        records = sum(header.record_count for header in headers)
        self._metrics.produced(partition.topic, records, len(data))

    async def _load(self, key: ReplicaKey, group: Sequence[StagedUpload]) -> bytearray:
        """Return the content of some uploads; verify it."""
        data = bytearray()
        for upload in group:
            content = await self._staging.read(key, upload)
            try:
                await asyncio.to_thread(validate, content)
            except CorruptBatch as error:
                self._staging.lose(key, upload)
                raise UnknownStaged(
                    f"the staged upload {upload.staged_id} is damaged", staged=[upload.staged_id]
                ) from error
            data += content
        return data


def _groups(uploads: Sequence[StagedUpload]) -> list[list[StagedUpload]]:
    """Return the uploads in order, in groups that are appended at once."""
    groups: list[list[StagedUpload]] = [[]]
    size = 0
    for upload in uploads:
        size += upload.size
        if groups[-1] and size > _APPEND_BYTES:
            groups.append([])
            size = upload.size
        groups[-1].append(upload)
    return groups


def _stamped(
    data: bytearray, batch: ApplicationBatch, position: int, skip: int, pieces: int
) -> bytearray:
    """Return the pieces after the first `skip`, with the producer fields of the publish."""
    headers: list[BatchHeader] = list(parse_headers(data))
    for index, header in enumerate(headers):
        if index >= skip:
            epoch = piece_epoch(position + index, pieces)
            stamp_producer(data, header, batch.publisher, epoch, batch.number)
    return data[headers[skip].position :]
