"""How many partitions topics have, for a producer that must never wait to ask."""

from __future__ import annotations

import asyncio
import time

from leadline_client.client import AsyncLeadlineClient
from leadline_client.errors import LeadlineError


class PartitionCountCache:
    """Counts as the client's newest metadata has them, which is looked at now and then.

    Whatever the client learns meanwhile, from a failed send for instance, counts at once.
    """

    def __init__(self, client: AsyncLeadlineClient, max_age_s: float) -> None:
        self._client = client
        self._max_age_s = max_age_s
        self._looked_s: dict[str, float] = {}
        self._looks: dict[str, asyncio.Task[None]] = {}

    async def of(self, topic: str, partition: int | None = None) -> int:
        """Return the count; waits only for a topic, or a `partition`, not heard of yet.

        Raises:
            UnknownTopic: there is no such topic.

        """
        known = self._client.core.cache.topic(topic)
        if known is None or (partition or 0) >= len(known.partitions):
            known = await self._client.describe(topic)
            self._looked_s[topic] = time.monotonic()
        elif self._is_old(topic):
            self._look(topic)
        return len(known.partitions)

    async def aclose(self) -> None:
        """Look no more."""
        looks = list(self._looks.values())
        for look in looks:
            look.cancel()
        await asyncio.gather(*looks, return_exceptions=True)

    def _is_old(self, topic: str) -> bool:
        looked_s = self._looked_s.setdefault(topic, time.monotonic())
        return time.monotonic() - looked_s > self._max_age_s

    def _look(self, topic: str) -> None:
        """Ask without making anybody wait."""
        if topic not in self._looks:
            look = asyncio.create_task(self._refresh(topic))
            self._looks[topic] = look
            look.add_done_callback(lambda _: self._looks.pop(topic))

    async def _refresh(self, topic: str) -> None:
        self._looked_s[topic] = time.monotonic()
        try:
            await self._client.describe(topic)
        except LeadlineError:
            return  # what is known is as good as before; sends will say what is wrong
