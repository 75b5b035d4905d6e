"""Batches that a task has sent and may have to send again, in a temporary file of the executor."""

from __future__ import annotations

import os
import tempfile
import threading
from typing import NamedTuple


class SpilledBatch(NamedTuple):
    """Where a batch is in the file, in bytes."""

    position: int
    size: int


class SpillFile:
    """A file that the system deletes when the task ends, however it ends. Threads may share it."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="leadline-")  # noqa: SIM115 - closed by `close`
        self._lock = threading.Lock()
        self._end = 0

    def append(self, batch: bytes) -> SpilledBatch:
        """Write `batch` to the end, and return where it is."""
        with self._lock:
            spilled = SpilledBatch(self._end, len(batch))
            self._end += len(batch)
        written = 0
        while written < len(batch):
            rest = memoryview(batch)[written:]
            written += os.pwrite(self._file.fileno(), rest, spilled.position + written)
        return spilled

    def read(self, spilled: SpilledBatch) -> bytes:
        """Return a batch."""
        return os.pread(self._file.fileno(), spilled.size, spilled.position)

    def close(self) -> None:
        """Delete the file."""
        self._file.close()
