"""What a replica's segment files hold, read past the broker: for byte-for-byte comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from leadline_client import batches
from leadline_client.batch_header import parse_headers
from leadline_client.errors import CorruptBatch
from tests.support.checks.history import Read
from tests.support.faults.load import value_of


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """One batch as it lies on a disk."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    octets: bytes


@dataclass(frozen=True, slots=True)
class Replica:
    """All batches of one replica, in offset order, from its log start on."""

    broker: str
    topic: str
    partition: int
    batches: Sequence[StoredBatch]
    log_start_offset: int = 0

    @property
    def log_end_offset(self) -> int:
        """The offset after the last record."""
        return self.batches[-1].next_offset if self.batches else self.log_start_offset

    def records(self) -> dict[int, tuple[int, str]]:
        """Return (leader epoch, value) by offset."""
        return {
            record.offset: (batch.leader_epoch, value_of(record.value))
            for batch in self.batches
            for record in batches.decode(batch.octets)
        }

    def epoch_at(self, offset: int) -> int | None:
        """Return the leader epoch of the record at `offset`, if there is one."""
        for batch in self.batches:
            if batch.base_offset <= offset < batch.next_offset:
                return batch.leader_epoch
        return None

    def as_read(self) -> Read:
        """Return what the files hold, for `History.check`."""
        records = [(offset, value) for offset, (_, value) in self.records().items()]
        return Read((self.topic, self.partition), records, f"{self.broker}'s files")

    def problems(self) -> list[str]:
        """Say what is wrong with this replica alone: gaps, epochs that fall (I6, I7)."""
        found = []
        if self.batches and self.batches[0].base_offset != self.log_start_offset:
            where = f"{self.broker} {self.topic}-{self.partition}"
            begin = self.batches[0].base_offset
            found.append(f"I5: {where}: begins at {begin}, not at {self.log_start_offset}")
        for before, after in pairwise(self.batches):
            where = f"{self.broker} {self.topic}-{self.partition} at {after.base_offset}"
            if after.base_offset != before.next_offset:
                found.append(f"I5: {where}: a gap, the batch before ends at {before.next_offset}")
            if after.leader_epoch < before.leader_epoch:
                found.append(
                    f"I6: {where}: leader epoch {after.leader_epoch} after {before.leader_epoch}"
                )
        return found


def read_replica(broker: str, log_dir: Path, topic: str, partition: int) -> Replica:
    """Read the segment files of a replica at rest, every CRC checked.

    Raises:
        CorruptBatch: the files do not hold whole, valid batches.

    """
    directory = log_dir / f"{topic}-{partition}"
    found: list[StoredBatch] = []
    segments = sorted([*directory.glob("*.log"), *directory.glob("*.next")])
    for segment in segments:
        data = segment.read_bytes()
        for header in parse_headers(data):
            if not batches.crc_matches(data, header):
                raise CorruptBatch(f"{segment}: CRC mismatch at offset {header.base_offset}")
            octets = data[header.position : header.position + header.size]
            found.append(
                StoredBatch(header.base_offset, header.next_offset, header.leader_epoch, octets)
            )
    log_start = int(segments[0].stem) if segments else 0
    return Replica(broker, topic, partition, found, log_start)


def differences(replicas: Sequence[Replica], high_watermark: int) -> list[str]:
    """Say where replicas differ below the high watermark, epochs and CRCs included (I5).

    Retention may have removed more from one than from another.
    """
    first, *others = replicas
    found = []
    for other in others:
        name = f"I5: {first.topic}-{first.partition}: {first.broker} and {other.broker}"
        log_start = max(first.log_start_offset, other.log_start_offset)
        expected, actual = (_between(one, log_start, high_watermark) for one in (first, other))
        if len(actual) != len(expected):
            found.append(f"{name}: {len(expected)} and {len(actual)} batches below the HW")
        unequal = next((a for a, b in zip(expected, actual, strict=False) if a != b), None)
        if unequal is not None:
            found.append(f"{name} differ in the batch at {unequal.base_offset}")
    return found


def _between(replica: Replica, log_start: int, high_watermark: int) -> list[StoredBatch]:
    return [
        batch
        for batch in replica.batches
        if log_start <= batch.base_offset and batch.next_offset <= high_watermark
    ]
