"""A log that is opened when it is first written: thousands of idle replicas touch no file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from leadline_broker.adapters.log.errors import LogClosed
from leadline_broker.adapters.log.layout import PartitionIdentity
from leadline_broker.adapters.log.partition_log import PartitionLog
from leadline_broker.domain.epochs import EpochHistory
from leadline_broker.domain.producers import ProducerStates
from leadline_client.batches import Buffer
from leadline_client.errors import OffsetOutOfRange

_NO_EPOCHS: Final = EpochHistory()
_NO_PRODUCERS: Final = ProducerStates()

Open = Callable[[PartitionIdentity], PartitionLog]


class LazyLog:
    """See `runtime.ports.Log`. Empty, without anything on disk, until the first write."""

    __slots__ = ("_dropped", "_log", "_open", "_root", "_segment_bytes", "identity")

    def __init__(self, root: Path, identity: PartitionIdentity, opening: Open) -> None:
        self.identity = identity
        self._root = root
        self._open = opening
        self._log: PartitionLog | None = None
        self._dropped = False
        self._segment_bytes: int | None = None

    def written(self) -> PartitionLog | None:
        """Return the log behind it, None if nothing was ever written."""
        return self._log

    def drop(self) -> None:
        """Refuse to be opened from now on: the replica is no longer here."""
        self._dropped = True

    def _opened(self) -> PartitionLog:
        if self._log is None:
            if self._dropped:
                raise LogClosed(f"the log of {self.identity.directory_name} is closed")
            self._log = self._open(self.identity)
            if self._segment_bytes is not None:
                self._log.roll_at(self._segment_bytes)
        return self._log

    @property
    def directory(self) -> Path:
        """Where its files are, or will be."""
        return self._root / self.identity.directory_name

    @property
    def log_start_offset(self) -> int:
        """The first offset kept."""
        return self._log.log_start_offset if self._log is not None else 0

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._log.log_end_offset if self._log is not None else 0

    @property
    def durable_end_offset(self) -> int:
        """The end up to which the log is fsynced."""
        return self._log.durable_end_offset if self._log is not None else 0

    @property
    def epochs(self) -> EpochHistory:
        """Which leader epoch wrote which offsets; for reading."""
        return self._log.epochs if self._log is not None else _NO_EPOCHS

    @property
    def producers(self) -> ProducerStates:
        """The idempotent producers as of the log end; for reading."""
        return self._log.producers if self._log is not None else _NO_PRODUCERS

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return self._log.size_bytes if self._log is not None else 0

    def size_from(self, offset: int) -> int:
        """Return the bytes from `offset` to the end; see `PartitionLog`."""
        return self._log.size_from(offset) if self._log is not None else 0

    @property
    def failed(self) -> bool:
        """Whether a write or an fsync failed."""
        return self._log is not None and self._log.failed

    def roll_at(self, segment_bytes: int) -> None:
        """Set the size at which segments are closed; see `PartitionLog`."""
        self._segment_bytes = segment_bytes
        if self._log is not None:
            self._log.roll_at(segment_bytes)

    def append(self, data: Buffer, *, crc_checked: bool = False) -> int:
        """Append stamped batches and return the new end; see `PartitionLog`."""
        return self._opened().append(data, crc_checked=crc_checked)

    def flush(self) -> int:
        """Fsync and return the durable end; see `PartitionLog`."""
        return self._log.flush() if self._log is not None else 0

    def read(self, offset: int, max_bytes: int, end_offset: int) -> bytes:
        """Return whole batches; see `PartitionLog`."""
        if self._log is not None:
            return self._log.read(offset, max_bytes, end_offset)
        if offset:
            raise OffsetOutOfRange(
                f"offset {offset} of an empty log", log_start_offset=0, log_end_offset=0
            )
        return b""

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record at or after a time (ms)."""
        return self._log.offset_for_timestamp(timestamp) if self._log is not None else None

    def truncate_to(self, offset: int) -> int:
        """Cut at a batch boundary; see `PartitionLog`."""
        return self._log.truncate_to(offset) if self._log is not None else 0

    def reset_to(self, offset: int) -> None:
        """Drop everything and begin anew at `offset`; see `PartitionLog`."""
        if offset or self._log is not None:
            self._opened().reset_to(offset)

    def apply_retention(
        self, now_ms: int, retention_ms: int, retention_bytes: int, limit_offset: int
    ) -> int:
        """Delete old closed segments; see `PartitionLog`."""
        if self._log is None:
            return 0
        return self._log.apply_retention(now_ms, retention_ms, retention_bytes, limit_offset)
