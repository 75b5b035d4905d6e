"""Staged batches: uploads that the in-sync replicas store outside the log until publication.

The index is in memory, the bytes are on disk. An upload is deleted when it is published,
dropped by its owner, or expired, or when its replica is removed. `StagedCopies` manages the
copies on other brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from uuid import uuid4

import structlog

from leadline_broker.domain.state import ReplicaKey
from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.cluster.configuration import Configuration
from leadline_broker.runtime.replication.partition import Partition
from leadline_broker.runtime.replication.replica_manager import ReplicaManager
from leadline_broker.runtime.serving.serving import Serving
from leadline_broker.runtime.staged_store import StagedStore
from leadline_broker.runtime.staging.staged_copies import StagedCopies
from leadline_client.batch_header import Buffer
from leadline_client.errors import (
    BodyTooLarge,
    LeaderNotAvailable,
    StagingFull,
    UnknownStaged,
)
from leadline_common.clock import Clock

logger = structlog.get_logger(__name__)

_LONGEST_SWEEP_MS: Final = 60_000

_File = tuple[ReplicaKey, str]
"""A file on disk: the partition and the id of its upload."""


@dataclass(frozen=True, slots=True)
class StagingResult:
    """A new staged upload, which is deleted at `expires_at_ms` (Unix ms) unless it is published."""

    staged_id: str
    records: int
    bytes: int
    expires_at_ms: int


@dataclass(slots=True, eq=False)
class StagedUpload:
    """The index entry of an upload, which expires at a monotonic time.

    While `pins` is above 0 it is being read or written and does not expire. `written` is set
    once the write has ended; after a failed write the upload is no longer in the index.
    """

    staged_id: str
    size: int
    expires_ms: int
    pins: int = 0
    written: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False, kw_only=True)
class Staging:
    """The staged uploads on this broker. Owned by the event loop, except for the files.

    `_writing` and `_removing` are the files on which a thread works. A file is written only
    while it is in neither: the same id may be kept again, and its name is the same.
    """

    store: StagedStore
    configuration: Configuration
    broker_state: BrokerState
    replicas: ReplicaManager
    serving: Serving
    copies: StagedCopies
    clock: Clock
    in_background: Callable[[Callable[[], None]], asyncio.Future[None]]
    _uploads: dict[ReplicaKey, dict[str, StagedUpload]] = field(default_factory=dict, init=False)
    _writing: dict[_File, StagedUpload] = field(default_factory=dict, init=False)
    _removing: dict[_File, asyncio.Future[None]] = field(default_factory=dict, init=False)
    used_bytes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        wall_ms = self.clock.wall_ms()
        for key, staged_id, size, written_ms in self.store.found():
            age_ms = max(0, wall_ms - written_ms)  # The clock may have been ahead.
            upload = StagedUpload(staged_id, size, self._expiry() - age_ms)
            upload.written.set()
            self._add(key, upload)
        self.sweep()

    def _expiry(self) -> int:
        """Return when an upload of now expires (monotonic)."""
        return self.clock.monotonic_ms() + self.configuration.current.staging_ttl_ms

    async def run(self) -> None:
        """Delete expired uploads periodically; never returns."""
        while True:
            ttl_ms = self.configuration.current.staging_ttl_ms
            await asyncio.sleep(min(_LONGEST_SWEEP_MS, ttl_ms // 2) / 1000)
            self.sweep()

    async def stage(
        self, topic: str, number: int, data: Buffer, leader_epoch: int | None = None
    ) -> StagingResult:
        """Store v2 batches on the disk of every in-sync replica, for a later publish.

        With `leader_epoch`, only as the leader of that epoch.

        Raises:
            CorruptBatch, BodyTooLarge, InvalidRequest, InvalidTimestamp, StagingFull,
                StorageFailed, NotEnoughReplicas, and the errors of `Serving.led`: nothing is
                staged, and leftover copies are deleted.

        """
        partition = self.serving.led(topic, number, leader_epoch)
        partition.replica.leading().check_append(all_replicas=True)
        headers = await self.serving.checked(partition.settings, data)
        # The check may have waited for a thread.
        partition = self.serving.led(topic, number, leader_epoch)
        partition.replica.leading().check_append(all_replicas=True)
        staged_id = uuid4().hex
        upload = await self.keep(partition.key, staged_id, data)
        try:
            await self.copies.replicate(partition, staged_id, data)
        except BaseException:
            self.discard_everywhere(partition, [staged_id])
            raise
        count = sum(header.record_count for header in headers)
        left_ms = upload.expires_ms - self.clock.monotonic_ms()
        return StagingResult(staged_id, count, upload.size, self.clock.wall_ms() + left_ms)

    async def keep(self, key: ReplicaKey, staged_id: str, data: Buffer) -> StagedUpload:
        """Write an upload to this broker's disk unless it exists, and return it.

        Raises:
            BodyTooLarge, StagingFull, StorageFailed: it is not stored.
            LeaderNotAvailable: it is not stored, because the replica was removed meanwhile.

        """
        upload = self._find(key, staged_id)
        if upload is None:
            await self._settle(key, staged_id)
            upload = self._find(key, staged_id)
        if upload is None:
            upload = await self._write(key, staged_id, data)
        else:
            await upload.written.wait()
        if self._find(key, staged_id) is None:
            raise LeaderNotAvailable("the replica was removed meanwhile")
        return upload

    async def _settle(self, key: ReplicaKey, staged_id: str) -> None:
        """Wait until no thread works on the file of an earlier upload with this id."""
        file = (key, staged_id)
        while True:
            if (upload := self._writing.get(file)) is not None:
                await upload.written.wait()
            elif (removal := self._removing.get(file)) is not None:
                await asyncio.wait([removal])
            else:
                return

    async def _write(self, key: ReplicaKey, staged_id: str, data: Buffer) -> StagedUpload:
        self._require_space(len(data))
        upload = StagedUpload(staged_id, len(data), self._expiry(), pins=1)
        self._add(key, upload)
        self._writing[key, staged_id] = upload
        storing = asyncio.create_task(self._store(key, upload, data))
        try:
            await asyncio.shield(storing)  # The thread goes on, whoever is cancelled.
        except asyncio.CancelledError:
            self.discard(key, [staged_id])
            raise
        return upload

    async def _store(self, key: ReplicaKey, upload: StagedUpload, data: Buffer) -> None:
        """Write a file; remove it if its upload has left the index meanwhile."""
        staged_id, stored = upload.staged_id, False
        try:
            await asyncio.to_thread(self.store.write, key, staged_id, data)
            stored = True
        finally:
            upload.pins -= 1
            del self._writing[key, staged_id]
            if not stored:
                self.discard(key, [staged_id])
            elif self._find(key, staged_id) is None:
                self._remove(key, [staged_id])
            upload.written.set()

    async def finish(self) -> None:
        """Wait for the writes that are in progress, whose requests may be gone."""
        while self._writing:
            await next(iter(self._writing.values())).written.wait()

    @property
    def writing(self) -> int:
        """How many uploads are being written."""
        return len(self._writing)

    def oldest_write(self) -> object:
        """Return the upload that has been written for longest, None if none is."""
        return next(iter(self._writing.values()), None)

    def _require_space(self, size: int) -> None:
        limit = self.configuration.current.staging_max_bytes
        if size > limit:
            raise BodyTooLarge(
                f"{size} bytes are more than the {limit} that may be staged", limit=limit
            )
        if self.used_bytes + size > limit:
            raise StagingFull(f"{self.used_bytes} bytes are staged, {limit} are allowed")

    def drop(self, topic: str, number: int, staged_id: str) -> None:
        """Delete an upload on all replicas.

        Raises:
            UnknownStaged: there is no such upload; for other errors see `Serving.led`.

        """
        partition = self.serving.led(topic, number)
        self._require([staged_id], partition.key)
        self.discard_everywhere(partition, [staged_id])

    @contextmanager
    def pinned(self, key: ReplicaKey, staged_ids: Sequence[str]) -> Iterator[list[StagedUpload]]:
        """Keep uploads from expiring while they are read.

        Raises:
            UnknownStaged: one of them does not exist on this broker.

        """
        uploads = self._require(staged_ids, key)
        for upload in uploads:
            upload.pins += 1
        try:
            yield uploads
        finally:
            for upload in uploads:
                upload.pins -= 1

    def _require(self, staged_ids: Iterable[str], key: ReplicaKey) -> list[StagedUpload]:
        found = [(staged_id, self._find(key, staged_id)) for staged_id in staged_ids]
        missing = [staged_id for staged_id, upload in found if upload is None]
        if missing:
            raise UnknownStaged(f"this broker has no staged upload {missing[0]}", staged=missing)
        return [upload for _, upload in found if upload is not None]

    async def read(self, key: ReplicaKey, upload: StagedUpload) -> bytes:
        """Return the bytes of an upload.

        Raises:
            UnknownStaged: the file is gone.
            StorageFailed: the read failed.

        """
        data = await asyncio.to_thread(self.store.read, key, upload.staged_id)
        if data is None:
            self.lose(key, upload)
            raise UnknownStaged(
                f"the staged upload {upload.staged_id} is gone", staged=[upload.staged_id]
            )
        return data

    def lose(self, key: ReplicaKey, upload: StagedUpload) -> None:
        """Delete an upload that is gone or damaged, but no other that has its id by now."""
        if self._find(key, upload.staged_id) is upload:
            self.discard(key, [upload.staged_id])

    async def recover(self, partition: Partition, staged_ids: Iterable[str]) -> None:
        """Copy missing uploads from other replicas.

        Raises:
            UnknownStaged: no reachable replica has one of them.
            StagingFull, StorageFailed, LeaderNotAvailable: see `keep`.

        """
        missing = [i for i in staged_ids if self._find(partition.key, i) is None]
        async for staged_id, data in self.copies.fetch(partition, missing):
            if data is None:
                raise UnknownStaged(
                    f"no replica has the staged upload {staged_id}", staged=[staged_id]
                )
            await self.keep(partition.key, staged_id, data)

    def discard_everywhere(self, partition: Partition, staged_ids: Sequence[str]) -> None:
        """Delete uploads on this broker and on the other replicas."""
        self.discard(partition.key, staged_ids)
        self.copies.discard(partition, staged_ids)

    def discard(self, key: ReplicaKey, staged_ids: Iterable[str]) -> None:
        """Delete uploads on this broker only."""
        uploads = self._uploads.get(key, {})
        removed = [uploads.pop(staged_id) for staged_id in staged_ids if staged_id in uploads]
        if not uploads:
            self._uploads.pop(key, None)
        self.used_bytes -= sum(upload.size for upload in removed)
        if removed:
            self._remove(key, [upload.staged_id for upload in removed])

    def forget(self, key: ReplicaKey) -> None:
        """Delete all uploads of a replica that was removed."""
        uploads = self._uploads.pop(key, {})
        self.used_bytes -= sum(upload.size for upload in uploads.values())
        if uploads:
            # By their ids: the replica may return, and be sent uploads, before this is done.
            self._remove(key, list(uploads))

    def _remove(self, key: ReplicaKey, staged_ids: Sequence[str]) -> None:
        """Remove the files of uploads that have left the index."""
        files = [(key, staged_id) for staged_id in staged_ids]
        removal = self.in_background(partial(self.store.remove, key, staged_ids))

        def forget(_: asyncio.Future[None]) -> None:
            for file in files:
                if self._removing.get(file) is removal:
                    del self._removing[file]

        self._removing.update(dict.fromkeys(files, removal))
        removal.add_done_callback(forget)

    def sweep(self) -> None:
        """Delete expired uploads, and those of partitions without a replica on this broker."""
        now_ms = self.clock.monotonic_ms()
        for key, uploads in list(self._uploads.items()):
            if self.broker_state.granted and self.replicas.find(key) is None:
                self.forget(key)
                continue
            expired = [
                u.staged_id for u in uploads.values() if u.expires_ms <= now_ms and not u.pins
            ]
            if expired:
                logger.info("staged batches expired", partition=key, uploads=len(expired))
                self.discard(key, expired)

    def _add(self, key: ReplicaKey, upload: StagedUpload) -> None:
        self._uploads.setdefault(key, {})[upload.staged_id] = upload
        self.used_bytes += upload.size

    def _find(self, key: ReplicaKey, staged_id: str) -> StagedUpload | None:
        return self._uploads.get(key, {}).get(staged_id)
