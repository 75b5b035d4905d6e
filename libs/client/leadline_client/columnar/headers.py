"""Headers of records, as lists of a name and a value."""

from __future__ import annotations

from typing import Literal, TypeAlias

import pyarrow as pa

from leadline_client.plain_codec import varint_at
from leadline_client.unreadable import UnreadableRecords

NameErrors: TypeAlias = Literal["strict", "replace"]
"""What a name that is not UTF-8 becomes: an error, or a name with replacement characters."""


def no_headers(count: int, kind: pa.ListType) -> pa.ListArray:
    """Return the column of `count` records without headers: empty lists."""
    bounds = pa.repeat(pa.scalar(0, pa.int32()), count + 1).buffers()[1]
    nothing = pa.array([], kind.value_type)
    return pa.Array.from_buffers(kind, count, [None, bounds], children=[nothing])


def read_headers(
    octets: bytes,
    positions: list[int],
    counts: list[int],
    kind: pa.ListType,
    name_errors: NameErrors = "strict",
) -> tuple[pa.ListArray, list[int]]:
    """Decode `counts[i]` headers, which begin at `positions[i]`; return also where they end.

    A loop is fast enough, as few records have headers. Raises UnreadableRecords.
    """
    bounds, names, values, ends = [0], [], [], []
    for start, count in zip(positions, counts, strict=True):
        position = start
        for _ in range(count):
            name, position = _bytes_at(octets, position)
            value, position = _bytes_at(octets, position)
            if name is None:
                raise UnreadableRecords("a header has no name")
            names.append(_decoded(name, name_errors))
            values.append(value)
        bounds.append(len(names))
        ends.append(position)
    pairs = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(values, pa.binary())], ["key", "value"]
    )
    lists = pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), pairs)
    return lists.cast(kind), ends


def _decoded(name: bytes, errors: NameErrors) -> str:
    try:
        return name.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        raise UnreadableRecords("the name of a header is not UTF-8") from error


def _bytes_at(octets: bytes, position: int) -> tuple[bytes | None, int]:
    try:
        length, begin = varint_at(octets, position)
    except IndexError as outside:
        raise UnreadableRecords("a header ends in the middle of a number") from outside
    if length < 0:
        return None, begin
    if begin + length > len(octets):
        raise UnreadableRecords(f"a header of {length} bytes")
    return octets[begin : begin + length], begin + length
