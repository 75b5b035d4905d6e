"""Which fetcher fetches which partition: several fetchers for each leader.

Replicas that a reassignment adds have separate fetchers until they have caught up (KIP-73).
"""

from __future__ import annotations

import asyncio
from functools import partial

from leadline_broker.runtime.replication.fetchers import FetchContext, ReplicaFetcher
from leadline_broker.runtime.replication.partition import Partition
from leadline_common.tracing.spans import background_context


class ReplicaFetcherManager:
    """All fetchers of this broker. Owned by the event loop."""

    def __init__(self, context: FetchContext) -> None:
        self._context = context
        self._fetchers: dict[tuple[int, int | str], ReplicaFetcher] = {}
        self._tasks: dict[tuple[int, int | str], asyncio.Task[None]] = {}
        self._fetcher_of: dict[Partition, ReplicaFetcher] = {}

    def start(self, partition: Partition, leader: int) -> None:
        """Fetch the partition from `leader`, starting at its log end."""
        self.stop(partition)
        group = None
        lane: int | str = partition.partition % self._context.settings.num_replica_fetchers
        if partition.replica.catching_up:
            lane = group = self._context.throttle.group_of(partition.key)
        fetcher = self._fetchers.get((leader, lane))
        if fetcher is None:
            on_caught_up = None if group is None else partial(self.start, leader=leader)
            fetcher = ReplicaFetcher(leader, self._context, group, on_caught_up)
            self._fetchers[leader, lane] = fetcher
            self._tasks[leader, lane] = asyncio.create_task(
                fetcher.run(), name=f"fetcher-{leader}-{lane}", context=background_context()
            )
        self._fetcher_of[partition] = fetcher
        fetcher.add(partition)

    def regroup(self) -> None:
        """Fetch moving replicas by the fetchers of their groups, and end those without any."""
        for partition, fetcher in list(self._fetcher_of.items()):
            group = self._context.throttle.group_of(partition.key)
            if fetcher.group is not None and fetcher.group != group:
                self.start(partition, fetcher.leader)
        for lane, fetcher in list(self._fetchers.items()):
            if fetcher.group is not None and not len(fetcher):
                del self._fetchers[lane]
                self._tasks.pop(lane).cancel()

    def stop(self, partition: Partition) -> None:
        """Stop fetching the partition, if it is being fetched."""
        fetcher = self._fetcher_of.pop(partition, None)
        if fetcher is not None:
            fetcher.remove(partition)

    def problems(self) -> list[str]:
        """Return how many replicas cannot begin again, and the first of them."""
        waiting = [one for fetcher in self._fetchers.values() for one in fetcher.not_begun]
        if not waiting:
            return []
        return [f"replicas that cannot begin again: {len(waiting)}, first {waiting[0]}"]

    async def close(self) -> None:
        """Stop all fetchers."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()
        self._fetchers.clear()
        self._fetcher_of.clear()
