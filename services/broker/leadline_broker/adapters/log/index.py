"""The sparse index of a segment: from offset or timestamp to file position.

It is in memory while the segment grows and is written when the segment is closed. Both
files are derived from the segment; damaged ones are rebuilt.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path

from leadline_broker.adapters.log.checked_files import read_checked, write_checked
from leadline_broker.adapters.log.errors import CorruptFile
from leadline_broker.adapters.log.layout import INDEX_SUFFIX, TIME_INDEX_SUFFIX

NO_TIMESTAMP = -1
_SUMMARY = struct.Struct(">qqq")
_KIND = "offset-index"
_TIME_KIND = "time-index"


class SparseIndex:
    """Entries for some batches of a segment, the first batch always among them.

    Invariant: offsets and positions strictly increase. `times[i]` is the latest
    timestamp (ms) of all batches before entry i, so times never decrease and a
    search for the first batch at or after a time can start at the last entry
    whose time is earlier.
    """

    __slots__ = ("interval", "offsets", "positions", "times")

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self.offsets = array("q")
        self.positions = array("q")
        self.times = array("q")

    def add(self, offset: int, position: int, latest_before: int) -> None:
        """Add the batch at byte `position` if it is far enough from the last entry."""
        if not self.positions or position - self.positions[-1] >= self.interval:
            self.offsets.append(offset)
            self.positions.append(position)
            self.times.append(latest_before)

    def entry_for_offset(self, offset: int) -> int:
        """Return the number of the last entry at or before `offset`."""
        return bisect_right(self.offsets, offset) - 1

    def entry_for_position(self, position: int) -> int:
        """Return the number of the last entry at or before a file position."""
        return bisect_right(self.positions, position) - 1

    def entry_for_timestamp(self, timestamp: int) -> int:
        """Return the number of the last entry that only earlier timestamps precede."""
        return max(0, bisect_left(self.times, timestamp) - 1)

    def truncate_to(self, position: int) -> None:
        """Remove the entries at or after a file position."""
        keep = bisect_left(self.positions, position)
        del self.offsets[keep:]
        del self.positions[keep:]
        del self.times[keep:]


def write_index(
    base: Path, index: SparseIndex, size: int, next_offset: int, max_timestamp: int
) -> None:
    """Write both index files of a segment; `base` is its path without suffix.

    They are not synced, because reading them verifies their checksums.
    """
    summary = _SUMMARY.pack(size, next_offset, max_timestamp)
    offsets, positions, times = map(_to_disk, (index.offsets, index.positions, index.times))
    path = base.with_suffix(INDEX_SUFFIX)
    write_checked(path, _KIND, summary + offsets + positions, sync=False)
    time_path = base.with_suffix(TIME_INDEX_SUFFIX)
    write_checked(time_path, _TIME_KIND, summary + times + offsets, sync=False)


def read_index(base: Path, interval: int, size: int) -> tuple[SparseIndex, int, int]:
    """Return (index, next offset, latest timestamp) of a segment of `size` bytes.

    Raises:
        CorruptFile: a file is missing, unreadable or damaged, or does not match the segment.

    """
    try:
        body = read_checked(base.with_suffix(INDEX_SUFFIX), _KIND)
        time_body = read_checked(base.with_suffix(TIME_INDEX_SUFFIX), _TIME_KIND)
    except OSError as error:
        raise CorruptFile(f"{base.name} has no index: {error.strerror}") from error
    if body[: _SUMMARY.size] != time_body[: _SUMMARY.size]:
        raise CorruptFile(f"the indexes of {base.name} do not belong together")
    indexed_size, next_offset, max_timestamp = _SUMMARY.unpack_from(body)
    if indexed_size != size:
        raise CorruptFile(f"the index of {base.name} covers {indexed_size} bytes of {size}")
    index = SparseIndex(interval)
    half = (len(body) - _SUMMARY.size) // 2
    index.offsets = _from_disk(body[_SUMMARY.size : _SUMMARY.size + half])
    index.positions = _from_disk(body[_SUMMARY.size + half :])
    index.times = _from_disk(time_body[_SUMMARY.size : _SUMMARY.size + half])
    return index, next_offset, max_timestamp


def _to_disk(values: array[int]) -> bytes:
    if sys.byteorder == "little":
        values = values[:]
        values.byteswap()
    return values.tobytes()


def _from_disk(content: bytes) -> array[int]:
    values = array("q", content)
    if sys.byteorder == "little":
        values.byteswap()
    return values
