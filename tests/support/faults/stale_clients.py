"""Clients that were told of one broker each, and what they know of leaders (S29, rule R15)."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from contextlib import AsyncExitStack
from typing import Self

from leadline_client.client import AsyncClient
from leadline_client.errors import LeadlineError
from tests.support.faults.load import IMPATIENT, Load
from tests.support.faults.scenario import Scenario

_RATE, _BATCH = 60, 10
_PERIOD_S = 0.5


class StaleClients:
    """A writer, two readers and a questioner for each broker, which they have as bootstrap.

    All they do is part of the scenario's history.
    """

    def __init__(self, running: Scenario) -> None:
        self._running = running
        self._stack = AsyncExitStack()
        self._epochs: dict[tuple[str, int], list[int]] = defaultdict(list)
        """What each client said of each partition, one look after another."""
        self.loads: list[Load] = []
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        cluster, main = self._running.cluster, self._running.load
        for broker in cluster.supervisor.layout.brokers:
            url = cluster.url(broker.name)
            load = Load(
                url,
                main.topic,
                main.partitions,
                _RATE,
                _BATCH,
                label=f"{broker.name}/",
                history=main.history,
            )
            self.loads.append(await self._stack.enter_async_context(load))
            client = await self._stack.enter_async_context(AsyncClient(url, policy=IMPATIENT))
            self._tasks.append(asyncio.create_task(self._ask(broker.name, client)))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    async def go_on(self) -> None:
        """Wait until every writer has new acknowledgements in every partition."""
        await asyncio.gather(*(load.progress(records=_BATCH) for load in self.loads))

    def elections_seen(self) -> int:
        """Return how many elections each client has seen at least, over all partitions."""
        seen: dict[str, int] = defaultdict(int)
        for (client, _), epochs in self._epochs.items():
            seen[client] += len(set(epochs)) - 1
        return min(seen.values()) if len(seen) == len(self.loads) else 0

    async def stop(self) -> None:
        """End all clients, fail if what one knew went back, and hand over what they did."""
        self._stopping.set()
        await asyncio.gather(*self._tasks)
        for load in self.loads:
            await load.stop()
            self._running.load.acks += load.acks
            self._running.load.tails += load.tails
        back = {who: epochs for who, epochs in self._epochs.items() if epochs != sorted(epochs)}
        assert not back, f"leader epochs that clients knew went back: {back}"

    async def _ask(self, name: str, client: AsyncClient) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(LeadlineError):
                described = await client.describe(self._running.topic)
                for row in described.partitions:
                    self._epochs[name, row.partition].append(row.leader_epoch)
            await asyncio.sleep(_PERIOD_S)
