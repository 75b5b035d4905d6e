"""Reading a closed segment from the disk, part by part, to find damage that nobody has read.

The page cache hides what the disk has lost, so the segment leaves it before it is read. A closed
segment does not grow, so any thread can read it. But it may be truncated or deleted meanwhile,
which looks like damage. Reading the batch in the ordinary way tells.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from leadline_broker.adapters.log.errors import READ_ERRORS, CorruptStoredBatch, storage_error
from leadline_broker.adapters.log.file_cache import FileCache, LogFile
from leadline_broker.adapters.log.scan import sound_batch
from leadline_broker.domain.epochs import EpochHistory

_PART: Final = 256 << 10
_MOST_IN_PART: Final = 200
"""How many bytes, and how many batches, are checked at once: some 2 ms of the interpreter."""
_TO_THE_END: Final = 0


@dataclass(slots=True)
class SegmentScrub:
    """Implements `runtime.stored_batches.SegmentScrub`; only one thread may use it at a time.

    `position` and `offset` are where the next part begins. `end_offset` follows the last batch of
    the segment. `epochs` are a copy of the log's. `file` is open in `files` perhaps.
    """

    files: FileCache
    file: LogFile
    size: int
    offset: int
    end_offset: int
    epochs: EpochHistory
    position: int = 0

    @property
    def has_ended(self) -> bool:
        """Whether all batches were checked."""
        return self.offset >= self.end_offset

    def check_part(self) -> int:
        """Check the next batches; return their bytes.

        Raises:
            CorruptStoredBatch: the batch at `offset` is damaged, or is not there any more.
            StorageFailed: the file cannot be read.

        """
        with READ_ERRORS:
            fd = self._opened()
            try:
                if not self.position:
                    os.posix_fadvise(fd, 0, _TO_THE_END, os.POSIX_FADV_DONTNEED)
                return self._check_batches(fd)
            finally:
                os.close(fd)

    def _opened(self) -> int:
        try:
            return os.open(self.file.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            if self.file.is_removed:
                raise storage_error(error) from error
            self.files.close(self.file)  # Or whoever reads does not notice that it was removed.
            raise

    def _check_batches(self, fd: int) -> int:
        begin = self.position
        for _ in range(_MOST_IN_PART):
            if self.has_ended or self.position - begin >= _PART:
                break
            span = sound_batch(fd, self.position, self.size, self.offset, self.epochs)
            if span is None:
                raise CorruptStoredBatch(f"the batch at offset {self.offset} is damaged")
            self.position, self.offset = span.end, span.next_offset
        return self.position - begin
