"""Replaces damaged batches of this broker's logs by the copies of other in-sync replicas.

Disks lose sectors and flip bits. Whoever reads a batch that is damaged, a consumer or a follower,
begins the repair of its partition, and reads again after it. Committed batches alone are repaired:
all in-sync replicas have them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import structlog

from leadline_broker.domain.producers import NO_PRODUCER_ID
from leadline_broker.domain.state import ReplicaKey
from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.ports import Peers
from leadline_broker.runtime.replication.partition import Partition
from leadline_client.errors import CorruptBatch, DamagedBatch, LeadlineError, StorageFailed
from leadline_common.clock import Clock
from leadline_common.identity import InternalAddress
from leadline_common.routed_records import RoutedRead

ReadLog = Callable[[Partition, int, int, int], bytes]
"""`Repairs.read`."""

logger = structlog.get_logger(__name__)

RETRY_MS: Final = 1_000
"""How long after a repair without an answer of some replica a reader begins the next one."""
UNREPAIRABLE_MS: Final = 10_000
"""The same after one for which no replica had a sound copy."""
_COPIED_BYTES: Final = 4 << 20
_TIMEOUT_MS: Final = 3_000
_TO_DAMAGE: Final = 1_024
"""How many turns of the event loop look for the damage that a reader has met."""
_BEHIND_DAMAGE: Final = 64
"""How many look for more of it."""
_TURN_S: Final = 0.01
"""How long others have the event loop between two of these turns."""


@dataclass(slots=True)
class _Damage:
    """What is known of a partition that is damaged; its repair `is_under_way` or has failed.

    It is `unrepairable` for now if every other in-sync replica was asked, and none has a sound
    copy, or if the disk does not take a copy.
    """

    offset: int
    is_under_way: bool = True
    unrepairable: bool = False
    failed_ms: float = 0.0

    def may_be_tried(self, now_ms: float) -> bool:
        """Tell whether it is time for another repair."""
        pause_ms = UNREPAIRABLE_MS if self.unrepairable else RETRY_MS
        return not self.is_under_way and now_ms - self.failed_ms >= pause_ms


@dataclass(eq=False, kw_only=True)
class Repairs:
    """Repairs one partition at a time. Owned by the event loop.

    `on_found()` is called for each damage that a reader meets, again after a repair that failed;
    `on_repaired(batches)` after each repair. `mark(partition)` has what was written fsynced.
    """

    broker_state: BrokerState
    peers: Peers
    clock: Clock
    find: Callable[[ReplicaKey], Partition | None]
    on_found: Callable[[], None]
    on_repaired: Callable[[int], None]
    mark: Callable[[Partition], None]
    _known: dict[ReplicaKey, _Damage] = field(default_factory=dict, init=False)
    _queue: asyncio.Queue[Partition] = field(default_factory=asyncio.Queue, init=False)

    def read(self, partition: Partition, offset: int, max_bytes: int, end_offset: int) -> bytes:
        """Read a partition's log; see `PartitionLog.read`.

        Raises:
            DamagedBatch: what is to be read is being repaired.
            StorageFailed: it is damaged, and cannot be repaired now.

        """
        try:
            return partition.log.read(offset, max_bytes, end_offset)
        except DamagedBatch as damage:
            raise self._found(partition, offset, damage) from damage

    @contextmanager
    def reading(self, partition: Partition) -> Iterator[None]:
        """Begin a repair if the block, which reads a partition's log, meets damage; see `read`."""
        try:
            yield
        except DamagedBatch as damage:
            raise self._found(partition, damage.offset, damage) from damage

    async def know_producers(self, partition: Partition, producer_id: int) -> None:
        """Return once damaged batches cannot hide what a producer has written to a log.

        Batches that are lost for good cannot tell it: then the rest of the log has to do.

        Raises:
            DamagedBatch: they are to be repaired first.
            StorageFailed: they cannot be read for another reason.

        """
        while producer_id != NO_PRODUCER_ID and partition.log.producers.unread:
            try:
                partition.log.batches.read_unread()
            except DamagedBatch as damage:
                refusal = self._found(partition, damage.offset, damage)
                if self._is_final(partition):
                    return
                message = f"which batches a producer has written is unknown: {refusal.message}"
                raise DamagedBatch(message, offset=damage.offset) from damage
            await asyncio.sleep(0)

    def _is_final(self, partition: Partition) -> bool:
        """Tell whether no replica has a sound copy, nor one that may be in sync later."""
        if self._others(partition):
            return self._known[partition.key].unrepairable
        return len(partition.replica.state.assigned) <= 1

    def _found(self, partition: Partition, offset: int, damage: DamagedBatch) -> StorageFailed:
        now_ms, known = self.clock.monotonic_ms(), self._known.get(partition.key)
        if known is None:
            known = self._known[partition.key] = _Damage(offset)
            self._begin(partition, known, damage)
        elif known.may_be_tried(now_ms):
            known.offset, known.is_under_way = offset, True
            self._begin(partition, known, damage)
        message = f"a batch of {partition.topic}-{partition.partition} is damaged: {damage.message}"
        if known.unrepairable or not self._others(partition):
            return StorageFailed(
                f"{message}; it cannot be repaired now: no other in-sync replica has a sound copy, "
                "or the disk does not take it"
            )
        return DamagedBatch(f"{message}; it is being repaired", offset=offset)

    def _begin(self, partition: Partition, known: _Damage, damage: DamagedBatch) -> None:
        logger.error(
            "stored batch damaged",
            partition=partition.key,
            read_from=known.offset,
            reason=damage.message,
        )
        self.on_found()
        self._queue.put_nowait(partition)

    async def run(self) -> None:
        """Repair what is found; never returns."""
        while True:
            partition = await self._queue.get()
            known = self._known[partition.key]
            try:
                await self._repair(partition, known)
            except LeadlineError as error:
                logger.warning("repair failed", partition=partition.key, reason=error.message)
                known.unrepairable = isinstance(error, StorageFailed)
            known.is_under_way, known.failed_ms = False, self.clock.monotonic_ms()
            if not self._is_there(partition):
                self._known.pop(partition.key, None)

    async def _repair(self, partition: Partition, known: _Damage) -> None:
        """Repair all damage from `known.offset` on; forget it then.

        Raises:
            StorageFailed: the damage cannot be found, as in a file that is too short, or the disk
                does not take a copy.

        """
        damaged = await self._damaged_from(partition, known.offset, _TO_DAMAGE)
        if damaged is None:
            raise StorageFailed(f"there is no damaged batch near offset {known.offset}")
        while damaged is not None:
            if not await self._replace(partition, known, damaged):
                logger.error("damaged batch not repaired", partition=partition.key, offset=damaged)
                return
            repaired = damaged
            damaged = await self._damaged_from(partition, repaired, _BEHIND_DAMAGE)
            if damaged == repaired:
                raise StorageFailed(f"the copy at offset {repaired} is damaged at once")
        del self._known[partition.key]

    async def _damaged_from(self, partition: Partition, offset: int, turns: int) -> int | None:
        for _ in range(turns):
            if offset >= partition.log.log_end_offset or not self._is_there(partition):
                return None
            offset, is_damaged = partition.log.batches.check(offset)
            if is_damaged:
                return offset
            await asyncio.sleep(_TURN_S)
        return None

    async def _replace(self, partition: Partition, known: _Damage, offset: int) -> bool:
        """Replace the damaged batch at `offset`, and those behind it; return whether any was."""
        all_answered = True
        for broker_id in self._others(partition):
            found = self.broker_state.internal_address_of(broker_id)
            copies = None if found is None else await self._copies(partition, offset, *found)
            if not self._is_there(partition):
                return False
            if copies is None:
                all_answered = False
            elif replaced := _repaired(partition, copies):
                known.unrepairable = False
                self.mark(partition)  # Or a power cut brings the damage back.
                self.on_repaired(replaced)
                logger.warning(
                    "damaged batches repaired",
                    partition=partition.key,
                    offset=offset,
                    batches=replaced,
                    copied_from=broker_id,
                )
                return True
        known.unrepairable = all_answered
        return False

    async def _copies(
        self, partition: Partition, offset: int, address: InternalAddress, incarnation: int
    ) -> bytes | None:
        """Return another replica's batches, none if it has no sound ones, None if it may have."""
        request = RoutedRead(
            broker_id=address.service.id,
            incarnation=incarnation,
            sender=self.broker_state.broker_id,
            topic=partition.topic,
            topic_id=partition.topic_id,
            partition=partition.partition,
            leader_epoch=partition.replica.state.leader_epoch,
            offset=offset,
            max_bytes=_COPIED_BYTES,
            min_bytes=0,
            wait_ms=0,
            any_replica=True,
        )
        try:
            return (await self.peers.read_routed(address, request, _TIMEOUT_MS)).records or None
        except StorageFailed:  # It may be damaged there, too.
            return b""
        except LeadlineError as error:
            logger.info("no copy for a repair", source=str(address), reason=error.message)
            return None

    def _others(self, partition: Partition) -> list[int]:
        """Return the other in-sync replicas."""
        return [one for one in partition.replica.state.isr if one != self.broker_state.broker_id]

    def _is_there(self, partition: Partition) -> bool:
        return self.find(partition.key) is partition


def _repaired(partition: Partition, copies: bytes) -> int:
    """Return how many batches the copies have replaced."""
    try:
        return partition.log.batches.repair(copies) if copies else 0
    except (CorruptBatch, DamagedBatch) as error:
        logger.warning("copies do not fit", partition=partition.key, reason=error.message)
        return 0
