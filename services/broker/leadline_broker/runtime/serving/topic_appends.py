"""Appending records to any partitions of a topic at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from leadline_broker.domain.topic_appends import TopicLayout, keyless_partition
from leadline_broker.runtime.cluster.metadata import ClusterMetadataCache
from leadline_broker.runtime.serving.routing import RoutedRecords
from leadline_client.errors import LeadlineError
from leadline_client.wire import NO_LEADER, Acks, ProduceResult


@dataclass(eq=False, kw_only=True)
class TopicAppends:
    """Appends to partitions, whoever leads them. Owned by the event loop."""

    metadata: ClusterMetadataCache
    routed: RoutedRecords
    random: Random

    def layout(self, topic: str, keyless: int | None = None) -> TopicLayout:
        """Return where the records of one request go.

        `keyless` is the partition to which earlier records of the request without a key went. The
        others follow them, in order, as long as it has a leader.

        Raises:
            UnknownTopic: the topic does not exist.
            BrokerFenced: this broker has no metadata yet.

        """
        numbers = self.metadata.partition_numbers(topic)
        if not numbers:
            raise self.metadata.why_unknown(topic)
        rows = ((number, self.metadata.partition(topic, number)) for number in numbers)
        led = [number for number, row in rows if row is not None and row.leader != NO_LEADER]
        if keyless is None or keyless not in led:
            keyless = keyless_partition(numbers, led, self.random.random())
        return TopicLayout(topic, frozenset(numbers), keyless)

    async def append(
        self, topic: str, batches: Mapping[int, bytearray], *, acks: Acks, timeout_ms: int
    ) -> dict[int, ProduceResult | LeadlineError]:
        """Append one batch to each partition, and return what came of each."""

        async def one(number: int, batch: bytearray) -> ProduceResult | LeadlineError:
            try:
                return await self.routed.produce(
                    topic, number, batch, acks=acks, timeout_ms=timeout_ms
                )
            except LeadlineError as error:
                return error

        results = await asyncio.gather(*(one(*item) for item in batches.items()))
        return dict(zip(batches, results, strict=True))
