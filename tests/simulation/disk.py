"""A broker's disk: a log with an fsynced mark, and the few small files beside it.

kill -9 keeps what was written, as the page cache survives; a power cut keeps
what was fsynced and, by chance, the first part of what was not.
"""

from __future__ import annotations

import struct
from random import Random

from leadline_broker.domain.epochs import EpochHistory

Record = tuple[int, int]
"""Leader epoch and value; one record is one batch."""


def pack(records: list[Record]) -> bytes:
    """Encode records for the wire."""
    return struct.pack(
        f">{2 * len(records)}q", *(number for record in records for number in record)
    )


def unpack(data: bytes) -> list[Record]:
    """Decode records from the wire."""
    numbers = struct.unpack(f">{len(data) // 8}q", data)
    return list(zip(numbers[::2], numbers[1::2], strict=True))


class SimulatedLog:
    """The log that the domain reads through `LogView`."""

    log_start_offset = 0

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.durable_end_offset = 0
        self.epochs = EpochHistory()
        self.cuts = 0

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return len(self.records)

    def append(self, records: list[Record]) -> None:
        """Append without fsync."""
        for record in records:
            self.epochs.assign(record[0], len(self.records))
            self.records.append(record)

    def truncate(self, end_offset: int) -> None:
        """Cut, durably; a flush under way then proves nothing."""
        if end_offset < len(self.records):
            del self.records[end_offset:]
            self.epochs.truncate_to(end_offset)
            self.durable_end_offset = min(self.durable_end_offset, end_offset)
            self.cuts += 1

    def flushed(self, end_offset: int, cuts: int) -> None:
        """Note the end of a flush that began at `end_offset`, after that many cuts."""
        if cuts == self.cuts:
            self.durable_end_offset = max(self.durable_end_offset, end_offset)


class Disk:
    """What a broker finds again when it starts.

    `directory_epoch` is None until a broker has registered with it (rule R17).
    """

    def __init__(self, directory_id: str = "") -> None:
        self.directory_id = directory_id
        self.directory_epoch: int | None = None
        self.log = SimulatedLog()
        self.high_watermark = 0
        self.controller_epoch = -1

    def power_cut(self, random: Random) -> int:
        """Lose the unsynced tail, or a part of it; return how many records are lost."""
        log = self.log
        unsynced = log.log_end_offset - log.durable_end_offset
        kept = int(random.random() * (unsynced + 1)) if random.random() < 0.3 else 0
        log.truncate(log.durable_end_offset + kept)
        return unsynced - kept

    def wipe(self) -> None:
        """Delete the replica."""
        self.log.truncate(0)
        self.high_watermark = 0

    def recover(self, *, fsync: bool) -> None:
        """Open the log after a crash; recovery fsyncs before anything counts (rule R4)."""
        if fsync:
            self.log.durable_end_offset = self.log.log_end_offset
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)
