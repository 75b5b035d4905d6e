"""Send records with the blocking producer, as a ratio to the asynchronous one.

Run ``python benchmarks/producer_sends.py``. It starts a cluster with one broker. In each round both
producers send the same records, one `send` at a time, and wait for their acknowledgements; the
median of the rounds counts. A ratio of 1 means that a blocking `send` costs what an asynchronous
one does; one that changed threads for each record took more than ten times as long.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from leadline_cli.cluster_layout import ClusterOptions
from leadline_cli.supervisor import Supervisor
from leadline_client import AsyncClient, AsyncProducer, NewTopic, Producer

RECORDS = 5_000
ROUNDS = 5
TOPIC = "sends"


def blocking(bootstrap: str) -> float:
    """Send by the blocking producer; return seconds."""
    with Producer(bootstrap) as producer:
        producer.send(TOPIC, b"first").result()
        began = time.perf_counter()
        for number in range(RECORDS):
            producer.send(TOPIC, b"record %d" % number)
        producer.flush()
        return time.perf_counter() - began


async def asynchronous(bootstrap: str) -> float:
    """Send by the asynchronous producer; return seconds."""
    async with AsyncProducer(bootstrap) as producer:
        await (await producer.send(TOPIC, b"first"))
        began = time.perf_counter()
        for number in range(RECORDS):
            await producer.send(TOPIC, b"record %d" % number)
        await producer.flush()
        return time.perf_counter() - began


async def main() -> None:
    """Print the medians and their ratio."""
    with tempfile.TemporaryDirectory() as directory:
        options = ClusterOptions(Path(directory), brokers=1, controllers=1, coordinators=0)
        async with Supervisor(options) as cluster:
            bootstrap = cluster.layout.brokers[0].url
            async with AsyncClient(bootstrap) as client:
                await client.create_topic(NewTopic(TOPIC, 1, 1))
            rounds = [
                (await asyncio.to_thread(blocking, bootstrap), await asynchronous(bootstrap))
                for _ in range(ROUNDS)
            ]
    own, base = (statistics.median(seconds) for seconds in zip(*rounds, strict=True))
    print(f"{RECORDS} records: blocking {own:.2f} s, asynchronous {base:.2f} s")
    print(f"ratio {own / base:.2f}")


if __name__ == "__main__":
    asyncio.run(main())
