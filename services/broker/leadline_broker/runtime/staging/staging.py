"""Staged batches: uploads that wait at the in-sync replicas, in no log yet, to be published.

The index is here, the bytes are on disk. An upload ends by being published, by its
owner's word, by its age, or with the replica. What others hold of it is `StagedCopies`.
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

from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.cluster.configuration import Configuration
from leadline_broker.runtime.ports import ReplicaKey, StagedStore
from leadline_broker.runtime.replication.partition import Partition
from leadline_broker.runtime.replication.replica_manager import ReplicaManager
from leadline_broker.runtime.serving.serving import Serving, require_size
from leadline_broker.runtime.serving.views import StagingResult
from leadline_broker.runtime.staging.staged_copies import StagedCopies
from leadline_client.batches import Buffer, validate
from leadline_client.errors import BodyTooLarge, LeaderNotAvailable, StagingFull, UnknownStaged
from leadline_common.clock import Clock

logger = structlog.get_logger(__name__)

_LONGEST_SWEEP_MS: Final = 60_000


@dataclass(slots=True, eq=False)
class StagedUpload:
    """One upload; `users` read or write it just now, and keep it here.

    `written` is set once it is on disk, or has failed to get there and is here no more.
    """

    staged_id: str
    size: int
    expires_at_ms: int
    users: int = 0
    written: asyncio.Event = field(default_factory=asyncio.Event)


class Staging:
    """Everything that is staged on this broker. Owned by the event loop, but for the files."""

    def __init__(
        self,
        *,
        store: StagedStore,
        configuration: Configuration,
        broker_state: BrokerState,
        replicas: ReplicaManager,
        serving: Serving,
        copies: StagedCopies,
        clock: Clock,
        in_background: Callable[[Callable[[], None]], None],
    ) -> None:
        self._store = store
        self._configuration = configuration
        self._broker_state = broker_state
        self._replicas = replicas
        self._serving = serving
        self._copies = copies
        self._clock = clock
        self._in_background = in_background
        self._uploads: dict[ReplicaKey, dict[str, StagedUpload]] = {}
        self.used_bytes = 0
        for key, staged_id, size, written_ms in store.found():
            ttl_ms = configuration.current.staging_ttl_ms
            upload = StagedUpload(staged_id, size, written_ms + ttl_ms)
            upload.written.set()
            self._add(key, upload)
        self.sweep()

    async def run(self) -> None:
        """Delete what is too old, for ever."""
        while True:
            ttl_ms = self._configuration.current.staging_ttl_ms
            await asyncio.sleep(min(_LONGEST_SWEEP_MS, ttl_ms // 2) / 1000)
            self.sweep()

    async def stage(self, topic: str, number: int, data: Buffer) -> StagingResult:
        """Keep v2 batches for a later publish, on the disk of every in-sync replica.

        Raises:
            CorruptBatch, BodyTooLarge, StagingFull, StorageFailed, NotEnoughReplicas,
                besides what `Serving.led` raises: nothing is kept for long.

        """
        partition = self._serving.led(topic, number)
        partition.replica.check_append(all_replicas=True)
        headers = validate(data)
        require_size(headers, partition.settings.max_message_bytes)
        staged_id = uuid4().hex
        upload = await self.keep(partition.key, staged_id, data)
        try:
            await self._copies.spread(partition, staged_id, data)
        except BaseException:
            self.let_go(partition, [staged_id])
            raise
        count = sum(header.record_count for header in headers)
        return StagingResult(staged_id, count, upload.size, upload.expires_at_ms)

    async def keep(self, key: ReplicaKey, staged_id: str, data: Buffer) -> StagedUpload:
        """Return an upload once it is on this broker's disk; one that is there already stays.

        Raises:
            BodyTooLarge, StagingFull, StorageFailed: it is not kept.
            LeaderNotAvailable: nor this one, as the replica was removed meanwhile.

        """
        upload = self._find(key, staged_id)
        if upload is None:
            upload = await self._write(key, staged_id, data)
        else:
            await upload.written.wait()
        if self._find(key, staged_id) is None:
            raise LeaderNotAvailable("the replica was removed meanwhile")
        return upload

    async def _write(self, key: ReplicaKey, staged_id: str, data: Buffer) -> StagedUpload:
        self._require_room(len(data))
        expires_at_ms = self._clock.wall_ms() + self._configuration.current.staging_ttl_ms
        upload = StagedUpload(staged_id, len(data), expires_at_ms, users=1)
        self._add(key, upload)
        kept = False
        try:
            await asyncio.to_thread(self._store.write, key, staged_id, data)
            kept = True
        finally:
            upload.users -= 1
            if not kept:
                self.discard(key, [staged_id])
            elif self._find(key, staged_id) is None:
                self._in_background(partial(self._store.remove, key, [staged_id]))
            upload.written.set()
        return upload

    def _require_room(self, size: int) -> None:
        limit = self._configuration.current.staging_max_bytes
        if size > limit:
            raise BodyTooLarge(f"{size} bytes, where {limit} may be staged", limit=limit)
        if self.used_bytes + size > limit:
            raise StagingFull(f"{self.used_bytes} bytes are staged, {limit} are allowed")

    def drop(self, topic: str, number: int, staged_id: str) -> None:
        """Delete an upload that nobody is going to publish.

        Raises:
            UnknownStaged: there is none; besides, see `Serving.led`.

        """
        partition = self._serving.led(topic, number)
        self._require([staged_id], partition.key)
        self.let_go(partition, [staged_id])

    @contextmanager
    def held(self, key: ReplicaKey, staged_ids: Sequence[str]) -> Iterator[list[StagedUpload]]:
        """Keep uploads from being swept while they are read.

        Raises:
            UnknownStaged: one of them is not here.

        """
        uploads = self._require(staged_ids, key)
        for upload in uploads:
            upload.users += 1
        try:
            yield uploads
        finally:
            for upload in uploads:
                upload.users -= 1

    def _require(self, staged_ids: Iterable[str], key: ReplicaKey) -> list[StagedUpload]:
        found = [(staged_id, self._find(key, staged_id)) for staged_id in staged_ids]
        missing = [staged_id for staged_id, upload in found if upload is None]
        if missing:
            raise UnknownStaged(f"nothing is staged here as {missing[0]}", staged=missing)
        return [upload for _, upload in found if upload is not None]

    async def read(self, key: ReplicaKey, staged_id: str) -> bytes:
        """Return the bytes of an upload.

        Raises:
            UnknownStaged: the file is gone.
            StorageFailed: the disk refuses.

        """
        data = await asyncio.to_thread(self._store.read, key, staged_id)
        if data is None:
            self.discard(key, [staged_id])
            raise UnknownStaged(f"the upload {staged_id} is gone", staged=[staged_id])
        return data

    async def recover(self, partition: Partition, staged_ids: Iterable[str]) -> None:
        """Get those of the uploads that are not here from other replicas.

        Raises:
            UnknownStaged: no replica has one of them, of those that answer.
            StagingFull, StorageFailed, LeaderNotAvailable: see `keep`.

        """
        lacking = [one for one in staged_ids if self._find(partition.key, one) is None]
        async for staged_id, data in self._copies.fetch(partition, lacking):
            if data is None:
                raise UnknownStaged(f"nothing is staged as {staged_id}", staged=[staged_id])
            await self.keep(partition.key, staged_id, data)

    def let_go(self, partition: Partition, staged_ids: Sequence[str]) -> None:
        """Let go of uploads here, and have the other replicas do so."""
        self.discard(partition.key, staged_ids)
        self._copies.withdraw(partition, staged_ids)

    def discard(self, key: ReplicaKey, staged_ids: Iterable[str]) -> None:
        """Let go of those uploads that are here, and here alone."""
        uploads = self._uploads.get(key, {})
        gone = [uploads.pop(one) for one in staged_ids if one in uploads]
        if not uploads:
            self._uploads.pop(key, None)
        self.used_bytes -= sum(upload.size for upload in gone)
        if gone:
            names = [upload.staged_id for upload in gone]
            self._in_background(partial(self._store.remove, key, names))

    def forget(self, key: ReplicaKey) -> None:
        """Let go of all that is staged for a replica: it is no longer here."""
        uploads = self._uploads.pop(key, {})
        self.used_bytes -= sum(upload.size for upload in uploads.values())
        if uploads:
            self._in_background(partial(self._store.remove_all, key))

    def sweep(self) -> None:
        """Delete what is too old, and what belongs to no replica here."""
        now = self._clock.wall_ms()
        for key, uploads in list(self._uploads.items()):
            if self._broker_state.granted and self._replicas.find(key) is None:
                self.forget(key)
                continue
            old = [u.staged_id for u in uploads.values() if u.expires_at_ms <= now and not u.users]
            if old:
                logger.info("staged batches expired", partition=key, uploads=len(old))
                self.discard(key, old)

    def _add(self, key: ReplicaKey, upload: StagedUpload) -> None:
        self._uploads.setdefault(key, {})[upload.staged_id] = upload
        self.used_bytes += upload.size

    def _find(self, key: ReplicaKey, staged_id: str) -> StagedUpload | None:
        return self._uploads.get(key, {}).get(staged_id)
