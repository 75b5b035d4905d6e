"""The checkpoint of all high watermarks, and which of its entries are of logs that are gone.

A partition that is removed and added again is another one with the same topic id and number, and a
replica that is reassigned away and back begins again. What the checkpoint has of the former log
would make the new one count as lost (rule R17), or as committed beyond what it is (rule R5).
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from leadline_broker.adapters.log.errors import CorruptFile
from leadline_broker.adapters.log.root_files import (
    HighWatermarks,
    read_high_watermarks,
    write_high_watermarks,
)
from leadline_broker.domain.state import ReplicaKey


class HighWatermarkFile:
    """The high watermarks of one log directory by (topic id, partition). Thread-safe.

    Methods that write raise OSError.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._without_log: set[ReplicaKey] = set()
        self._begun_again: set[ReplicaKey] = set()

    def read(self) -> dict[ReplicaKey, int]:
        """Return the high watermarks of the last checkpoint; none if it cannot be read."""
        with suppress(CorruptFile):
            return read_high_watermarks(self._root)
        return {}

    def write(self, high_watermarks: HighWatermarks) -> None:
        """Replace the checkpoint; durable when this returns.

        What was collected before a log was created may be of the former one. So the first
        checkpoint after that has no entry of it.
        """
        with self._lock:
            if self._begun_again:
                again = self._begun_again
                high_watermarks = {k: e for k, e in high_watermarks.items() if k not in again}
            write_high_watermarks(self._root, high_watermarks)
            self._begun_again.clear()
            self._without_log &= high_watermarks.keys()

    def note_start(self, found: HighWatermarks, stored: Collection[ReplicaKey]) -> None:
        """Note the last checkpoint, and which logs there are, when the broker starts."""
        self._without_log = {key for key in found if key not in stored}

    def log_goes(self, key: ReplicaKey) -> None:
        """Note that a log is about to be deleted, or set aside."""
        self._without_log.add(key)

    def log_created(self, key: ReplicaKey) -> None:
        """Remove what there is of a former log of a replica; durable when this returns.

        Entries of other logs that are gone go with it.
        """
        if key not in self._without_log:
            return
        with self._lock:
            left = {k: end for k, end in self.read().items() if k not in self._without_log}
            write_high_watermarks(self._root, left)
            self._without_log.clear()
            self._begun_again.add(key)
