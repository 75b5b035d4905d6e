"""What a task has sent and may have to send again, in a file of the executor's."""

from __future__ import annotations

import os
import tempfile
import threading
from typing import NamedTuple


class SpilledBatch(NamedTuple):
    """Where something lies in the spill_file, in bytes."""

    position: int
    size: int


class SpillFile:
    """A file that is gone with the task, whatever becomes of that. Threads may share it."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="leadline-")  # noqa: SIM115 - closed by `close`
        self._lock = threading.Lock()
        self._end = 0

    def keep(self, data: bytes) -> SpilledBatch:
        """Write `data` to the end, and return where it is."""
        with self._lock:
            slot = SpilledBatch(self._end, len(data))
            self._end += len(data)
        written = 0
        while written < len(data):
            at = slot.position + written
            written += os.pwrite(self._file.fileno(), memoryview(data)[written:], at)
        return slot

    def read(self, slot: SpilledBatch) -> bytes:
        """Return what was kept."""
        return os.pread(self._file.fileno(), slot.size, slot.position)

    def close(self) -> None:
        """Give the space back."""
        self._file.close()
