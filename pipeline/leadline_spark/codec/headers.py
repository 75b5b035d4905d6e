"""Record headers: few records have any, so that a loop over those that do is enough."""

from __future__ import annotations

import pyarrow as pa

from leadline_spark.codec.columns import HEADERS
from leadline_spark.codec.varints import Unreadable, varint_at

NO_HEADERS = pa.scalar([], HEADERS)
"""What a record without headers has: an empty list."""


def read_headers(octets: bytes, positions: list[int], counts: list[int]) -> pa.ListArray:
    """Return the lists of headers that begin at `positions`.

    Names are UTF-8; what is not is replaced, as in Kafka. Raises Unreadable and IndexError.
    """
    bounds, names, values = [0], [], []
    for start, count in zip(positions, counts, strict=True):
        position = start
        for _ in range(count):
            name, position = _bytes_at(octets, position)
            value, position = _bytes_at(octets, position)
            if name is None:
                raise Unreadable("a header has no name")
            names.append(name.decode("utf-8", "replace"))
            values.append(value)
        bounds.append(len(names))
    pairs = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(values, pa.binary())], ["key", "value"]
    )
    return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), pairs).cast(HEADERS)


def _bytes_at(octets: bytes, position: int) -> tuple[bytes | None, int]:
    length, begin = varint_at(octets, position)
    if length == -1:
        return None, begin
    if length < 0 or begin + length > len(octets):
        raise Unreadable(f"a header of {length} bytes")
    return octets[begin : begin + length], begin + length
