"""A Kafka cluster for programs without an event loop: it runs on a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

from aiokafka import AIOKafkaProducer

from peers.kafka.cluster import KafkaCluster
from peers.systems.zookeeper import zookeeper

KeyAndValue = tuple[bytes, bytes]
_SESSION_MS: Final = 20_000
_MOST_S: Final = 900.0
_MOST_BATCH_BYTES: Final = 1 << 20
_IN_FLIGHT: Final = 4


class LiveKafka:
    """A started cluster. What it awaits, it awaits on its own loop."""

    def __init__(self, cluster: KafkaCluster, loop: asyncio.AbstractEventLoop) -> None:
        self._cluster = cluster
        self._loop = loop

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return self._cluster.bootstrap

    def fill(self, topic: str, partitions: Sequence[Iterator[Sequence[KeyAndValue]]]) -> None:
        """Make a topic with these records, of which each sequence becomes a batch."""
        _finish(self._fill(topic, partitions), self._loop)

    async def _fill(
        self, topic: str, partitions: Sequence[Iterator[Sequence[KeyAndValue]]]
    ) -> None:
        await self._cluster.create_topic(topic, len(partitions))
        async with AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, acks="all", max_batch_size=_MOST_BATCH_BYTES
        ) as producer:
            for number, batches in enumerate(partitions):
                await _send(producer, topic, number, batches)


async def _send(
    producer: AIOKafkaProducer,
    topic: str,
    partition: int,
    batches: Iterator[Sequence[KeyAndValue]],
) -> None:
    sent: deque[asyncio.Future[Any]] = deque()
    now_ms = time.time_ns() // 1_000_000
    for records in batches:
        batch = producer.create_batch()
        for key, value in records:
            if batch.append(key=key, value=value, timestamp=now_ms) is None:
                raise ValueError(f"{len(records)} records do not fit into a batch")
        batch.close()
        sent.append(await producer.send_batch(batch, topic, partition=partition))
        if len(sent) > _IN_FLIGHT:
            await sent.popleft()
    while sent:
        await sent.popleft()


@contextmanager
def live_kafka(folder: Path, jars: Path) -> Iterator[LiveKafka]:
    """Run three brokers and a ZooKeeper for as long as the block lasts."""
    folder.mkdir(parents=True)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="live Kafka", daemon=True)
    thread.start()
    try:
        context = _cluster(folder, jars)
        cluster = _finish(context.__aenter__(), loop)
        try:
            yield LiveKafka(cluster, loop)
        finally:
            _finish(context.__aexit__(None, None, None), loop)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_MOST_S)
        loop.close()


@asynccontextmanager
async def _cluster(folder: Path, jars: Path) -> AsyncIterator[KafkaCluster]:
    async with (
        zookeeper(folder) as hosts,
        KafkaCluster(folder / "kafka", jars, f"{hosts}/kafka", _SESSION_MS) as cluster,
    ):
        yield cluster


def _finish(work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> Any:
    return asyncio.run_coroutine_threadsafe(work, loop).result(_MOST_S)
