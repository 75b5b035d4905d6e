"""The partitions of columns of records, by Kafka's rules (`leadline_client.partitioner`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from leadline_client.columnar.encode import Records
from leadline_client.columnar.murmur2 import modulo

_NONE = pa.scalar(0, pa.int64())


@dataclass(slots=True)
class StickyPartitions:
    """Assigns records without a key: all to one partition until a batch is full, then to the next.

    `first`, modulo the number of partitions, is the first one. A batch has `batch_bytes`.
    """

    first: int
    batch_bytes: int
    _filled: int = 0

    def assign(self, records: Records, numbers: pa.Int32Array, count: int) -> pa.Int32Array:
        """Return the partitions of records, of which `numbers` has those that are known."""
        if not numbers.null_count:
            return numbers
        sizes = pc.if_else(pc.is_null(numbers), records.sizes(), _NONE)
        before = pc.add(pc.subtract(pc.cumulative_sum(sizes), sizes), self._filled)
        # Modulo before the sum, which has to fit into 32 bits: `first` may be any number.
        turns = pc.add(pc.divide(before, self.batch_bytes), self.first % count)
        self._filled += pc.sum(sizes).as_py()
        return pc.coalesce(numbers, modulo(turns.cast(pa.uint32()), count))


def by_partition(records: Records, numbers: pa.Int32Array) -> Iterator[tuple[int, Records]]:
    """Yield the records of each partition, in their order."""
    order = pc.array_sort_indices(numbers)
    runs = pc.run_end_encode(numbers.take(order))
    start = 0
    for partition, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield partition, records.take(order.slice(start, end - start))
        start = end
