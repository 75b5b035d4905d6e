"""The choice of partitions for records, by Kafka's rules.

The hash of a key determines its partition (`murmur2.py`). Records without a key go to
one partition until its batch is full, and then to the next one: full batches matter
more than an even spread of single records (KIP-480). The first partition is random, so
that many short-lived producers fill all partitions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

from leadline_client.client import AsyncClient
from leadline_client.errors import InvalidRequest, LeadlineError, UnknownPartition
from leadline_client.murmur2 import partition_for_key
from leadline_client.payloads import OutgoingRecord


class StickyPartitioner:
    """Chooses the partitions of one topic's records; `random` returns numbers in [0, 1)."""

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._current: int | None = None

    def choose(self, key: bytes | None, partition_count: int) -> int:
        """Return the partition of the next record."""
        if key is not None:
            return partition_for_key(key, partition_count)
        if self._current is None:
            self._current = int(self._random() * partition_count)
        return self._current % partition_count

    def runs(
        self, records: Sequence[OutgoingRecord], indexes: Iterable[int], partition_count: int
    ) -> dict[int, list[int]]:
        """Return the partitions of records, each with those of their `indexes` that go there."""
        found: dict[int, list[int]] = {}
        for index in indexes:
            partition = self.choose(records[index].key, partition_count)
            found.setdefault(partition, []).append(index)
        return found

    def batch_closed(self, partition: int, partition_count: int) -> None:
        """Move on to the next partition if `partition` was the current one for keyless records."""
        if self._current is not None and partition == self._current % partition_count:
            self._current = (partition + 1) % partition_count


class PartitionCountCache:
    """The partition counts of topics, from the client's metadata.

    It refreshes old metadata in the background. Newer metadata that the client gets for another
    reason, for instance after a failed send, is used at once.
    """

    def __init__(self, client: AsyncClient, max_age_s: float) -> None:
        self._client = client
        self._max_age_s = max_age_s
        self._refreshed_s: dict[str, float] = {}
        self._refreshes: dict[str, asyncio.Task[None]] = {}
        self._closed = False

    def known(self, topic: str, partition: int | None, now_s: float) -> int | None:
        """Return the count, or None if the topic or `partition` is not known: ask then."""
        known = None if self._closed else self._client.core.cache.topic(topic)
        if known is None or not 0 <= (partition or 0) < len(known.partitions):
            return None
        if now_s - self._refreshed_s.setdefault(topic, now_s) > self._max_age_s:
            self._start_refresh(topic)
        return len(known.partitions)

    async def ask(self, topic: str, partition: int | None) -> int:
        """Return the count by the newest metadata.

        Raises:
            UnknownTopic, UnknownPartition: the topic or `partition` does not exist.
            InvalidRequest: the producer is closed.

        """
        if self._closed:
            raise InvalidRequest("the producer is closed")
        described = await self._client.describe(topic)
        self._refreshed_s[topic] = time.monotonic()
        count = len(described.partitions)
        if not 0 <= (partition or 0) < count:
            raise UnknownPartition(f"{topic!r} has {count} partitions, there is no {partition}")
        return count

    def close(self) -> None:
        """Tell no count any more, which every record needs."""
        self._closed = True

    async def aclose(self) -> None:
        """Cancel the refreshes."""
        refreshes = list(self._refreshes.values())
        for refresh in refreshes:
            refresh.cancel()
        await asyncio.gather(*refreshes, return_exceptions=True)

    def _start_refresh(self, topic: str) -> None:
        """Refresh the metadata in the background."""
        if topic not in self._refreshes:
            refresh = asyncio.create_task(self._refresh(topic))
            self._refreshes[topic] = refresh
            refresh.add_done_callback(lambda _: self._refreshes.pop(topic))

    async def _refresh(self, topic: str) -> None:
        self._refreshed_s[topic] = time.monotonic()
        try:
            await self._client.describe(topic)
        except LeadlineError:
            return  # The old count stays valid; sends report what is wrong.
