"""The records of stored batches, and the bytes that hold those of several batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc

from leadline_client.batch_header import BatchHeader
from leadline_client.columnar.record_starts import RecordStarts
from leadline_client.unreadable import UnreadableRecords

_MOST_BYTES = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Section:
    """The records of one batch: `size` bytes at `position` of `content` or of what was fetched."""

    header: BatchHeader
    position: int
    size: int
    content: pa.Buffer | None


def joined(view: memoryview, sections: Sequence[Section]) -> tuple[bytes, list[Section]]:
    """Return bytes that hold all these sections, and where they are in them.

    What is not compressed stays where it was fetched.
    """
    fetched = view.obj
    stored_plain = all(section.content is None for section in sections)
    if stored_plain and isinstance(fetched, bytes) and len(view) == len(fetched) <= _MOST_BYTES:
        return fetched, list(sections)
    position, pieces, placed = 0, [], []
    for section in sections:
        pieces.append(_bytes(view, section))
        placed.append(replace(section, position=position, content=None))
        position += section.size
    return b"".join(pieces), placed


def _bytes(view: memoryview, section: Section) -> pa.Buffer | memoryview:
    if section.content is not None:
        return section.content
    return view[section.position : section.position + section.size]


def starts_of(octets: bytes, sections: Sequence[Section]) -> pa.Int32Array:
    """Return where every record begins. Each section must end with its last record.

    Raises UnreadableRecords.
    """
    starts = RecordStarts(octets)
    for section in sections:
        count = section.header.record_count
        try:
            end = starts.add(section.position, count)
        except IndexError as outside:
            raise UnreadableRecords("a record is longer than the batch") from outside
        if end != section.position + section.size:
            raise UnreadableRecords(f"{count} records do not fill {section.size} bytes")
    return starts.column()


def spread(sections: Sequence[Section], values: Sequence[int]) -> pa.Int64Array:
    """Return a column with the value of each section for each of its records."""
    counts = [section.header.record_count for section in sections]
    if len(set(values)) == 1:
        return pa.repeat(pa.scalar(values[0], pa.int64()), sum(counts))
    ends = pa.array(accumulate(counts), pa.int32())
    runs = pa.RunEndEncodedArray.from_arrays(ends, pa.array(values, pa.int64()))
    return pc.run_end_decode(runs)
