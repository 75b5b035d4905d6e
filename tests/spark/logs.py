"""What is in a topic, as the client reads it: the other side of what Spark has written."""

from __future__ import annotations

from leadline_client.readers import AsyncPartitionReader
from leadline_client.wire import Record
from tests.spark.live import Live


def log_of(live: Live, topic: str, partition: int = 0) -> list[Record]:
    """Return all committed records of a partition."""

    async def read() -> list[Record]:
        ends = await live.client.offsets(topic, partition)
        reader = AsyncPartitionReader(live.client, topic, partition, ends.log_start_offset)
        return [record async for record in reader.read_to(ends.high_watermark)]

    return live.run(read())


def values_of(live: Live, topic: str, partitions: int) -> list[bytes | None]:
    """Return the values of all partitions, those of one in their order."""
    return [one.value for number in range(partitions) for one in log_of(live, topic, number)]
