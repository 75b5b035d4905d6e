"""Publishing staged batches, exactly once: the log itself remembers what was published.

One publish of a partition at a time reads, checks and appends; all of them wait for
the in-sync replicas side by side. The decisions are `domain.publishes`.
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
from leadline_broker.runtime.metrics import BrokerMetrics
from leadline_broker.runtime.ports import ReplicaKey
from leadline_broker.runtime.replication.partition import Partition
from leadline_broker.runtime.serving.serving import Serving
from leadline_broker.runtime.serving.views import PublishedBatch
from leadline_broker.runtime.staging.staging import StagedUpload, Staging
from leadline_client.batches import BatchHeader, parse_headers, stamp_producer, validate
from leadline_client.errors import (
    CorruptBatch,
    InvalidRequest,
    LeadershipLost,
    LeadlineError,
    UnknownStaged,
)

_APPEND_BYTES: Final = 64 * 1024 * 1024
"""What is staged for one batch is appended at once up to here, and in parts of this size beyond."""


@dataclass(frozen=True, slots=True)
class ApplicationBatch:
    """One batch of an application on its way into a partition."""

    partition: Partition
    leader_epoch: int
    publisher: int
    number: int

    @property
    def publishes(self) -> Publishes:
        """What the log knows of publishes, at present."""
        return self.partition.log.producers.publishes


class Publishing:
    """Publishes to the partitions that this broker leads. Owned by the event loop."""

    def __init__(self, *, serving: Serving, staging: Staging, metrics: BrokerMetrics) -> None:
        self._serving = serving
        self._staging = staging
        self._metrics = metrics
        self._locks: WeakValueDictionary[ReplicaKey, asyncio.Lock] = WeakValueDictionary()

    async def publish(
        self, topic: str, number: int, app: str, batch: int, staged: Sequence[str], timeout_ms: int
    ) -> PublishedBatch:
        """Append what is staged as a batch of `app`, unless it is there, and wait for acks=all.

        Raises:
            UnknownStaged, PublishMismatch, PublishOutOfOrder, NotEnoughReplicas,
            InvalidRequest, StorageFailed, besides what `Serving.led` raises: nothing
                was appended.
            RequestTimedOut, NotEnoughReplicasAfterAppend, LeadershipLost: the
                outcome is unknown; the same publish again settles it.

        """
        key = self._serving.led(topic, number).key
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            partition = self._serving.led(topic, number)
            epoch = partition.replica.state.leader_epoch
            todo = ApplicationBatch(partition, epoch, publisher_id(app), batch)
            found = todo.publishes.settled(todo.publisher, batch)
            if found is None:
                await self._append_staged(todo, staged)
                found = todo.publishes.settled(todo.publisher, batch)
                duplicate = False
            else:
                duplicate = True
            if not isinstance(found, Published):
                raise found if isinstance(found, LeadlineError) else _cut_short()
        # On a new leader, what it found in its log may not be committed yet.
        await self._serving.committed(partition, found.end_offset, timeout_ms)
        self._staging.let_go(partition, staged)
        self._metrics.published(duplicate=duplicate)
        return PublishedBatch(found.base_offset, found.last_offset, epoch, duplicate)

    async def _append_staged(self, batch: ApplicationBatch, staged: Sequence[str]) -> None:
        """Append what is staged; what is not here, or damaged, comes from another replica."""
        batch.partition.replica.check_append(all_replicas=True)
        try:
            await self._append_held(batch, staged)
        except UnknownStaged:
            await self._staging.recover(batch.partition, staged)
            await self._append_held(batch, staged)

    async def _append_held(self, batch: ApplicationBatch, staged: Sequence[str]) -> None:
        with self._staging.held(batch.partition.key, staged) as uploads:
            groups = _groups(uploads)
            counts: list[int] = []
            for group in groups:
                data = await self._load(batch.partition.key, group)
                counts += [header.record_count for header in parse_headers(data)]
            first = self._first_piece(batch, counts)
            await self._append_groups(batch, groups, data, first, len(counts))

    def _first_piece(self, batch: ApplicationBatch, counts: Sequence[int]) -> int:
        if len(counts) > MOST_PIECES:
            raise InvalidRequest(f"{len(counts)} record batches; {MOST_PIECES} make a batch")
        verdict = batch.publishes.check(batch.publisher, batch.number, counts)
        if isinstance(verdict, LeadlineError):
            raise verdict
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
        place, appended = 0, False
        for group in groups:
            try:
                is_last = group is groups[-1]
                data = last if is_last else await self._load(batch.partition.key, group)
                count = sum(1 for _ in parse_headers(data))
                skip = max(0, first - place)
                if skip < count:
                    data = await asyncio.to_thread(_stamped, data, batch, place, skip, pieces)
                    self._append(batch, data)
                    appended = True
                place += count
            except LeadlineError as error:
                if not appended:
                    raise
                raise LeadershipLost(f"published in part, again: {error.message}") from error

    def _append(self, batch: ApplicationBatch, data: bytearray) -> None:
        """Append, if all is still as it was before the last wait."""
        partition = batch.partition
        led = self._serving.led(partition.topic, partition.partition, batch.leader_epoch)
        if led is not partition:
            raise LeadershipLost("the partition was removed meanwhile")
        partition.replica.check_append(all_replicas=True)
        headers = list(parse_headers(data))
        self._serving.append(partition, data, headers, batch.leader_epoch)
        self._metrics.produced(sum(header.record_count for header in headers), len(data))

    async def _load(self, key: ReplicaKey, group: Sequence[StagedUpload]) -> bytearray:
        """Return the content of some uploads, checked."""
        data = bytearray()
        for upload in group:
            content = await self._staging.read(key, upload.staged_id)
            try:
                await asyncio.to_thread(validate, content)
            except CorruptBatch as error:
                self._staging.discard(key, [upload.staged_id])
                raise UnknownStaged(
                    f"the upload {upload.staged_id} is damaged", staged=[upload.staged_id]
                ) from error
            data += content
        return data


def _groups(uploads: Sequence[StagedUpload]) -> list[list[StagedUpload]]:
    """Return the uploads in order, in groups to append at once."""
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
    data: bytearray, batch: ApplicationBatch, place: int, skip: int, pieces: int
) -> bytearray:
    """Return the pieces but for the first `skip`, with who publishes written into them."""
    headers: list[BatchHeader] = list(parse_headers(data))
    for index, header in enumerate(headers):
        if index >= skip:
            epoch = piece_epoch(place + index, pieces)
            stamp_producer(data, header, batch.publisher, epoch, batch.number)
    return data[headers[skip].position :]


def _cut_short() -> LeadershipLost:
    return LeadershipLost("leadership moved while the batch was being published")
