"""Send records in four ways, as ratios to the asynchronous `send`.

Run ``python benchmarks/producer_sends.py``. It starts a cluster with one broker. In each round both
producers send the same records, by one `send` for each and by `send_many`, and wait for the
acknowledgements; the median of the rounds counts. A ratio of 1 means that a blocking `send` costs
what an asynchronous one does; one that changed threads for each record took more than ten times as
long.
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

RECORDS = 20_000
ROUNDS = 5
TOPIC = "sends"
VALUES = [b"record %d" % number for number in range(RECORDS)]


def blocking(bootstrap: str, *, many: bool) -> float:
    """Send by the blocking producer; return seconds."""
    with Producer(bootstrap) as producer:
        producer.send(TOPIC, b"first").result()
        began = time.perf_counter()
        if many:
            producer.send_many(TOPIC, VALUES)
        else:
            for value in VALUES:
                producer.send(TOPIC, value)
        producer.flush()
        return time.perf_counter() - began


async def asynchronous(bootstrap: str, *, many: bool) -> float:
    """Send by the asynchronous producer; return seconds."""
    async with AsyncProducer(bootstrap) as producer:
        await (await producer.send(TOPIC, b"first"))
        began = time.perf_counter()
        if many:
            await producer.send_many(TOPIC, VALUES)
        else:
            for value in VALUES:
                await producer.send(TOPIC, value)
        await producer.flush()
        return time.perf_counter() - began


async def one_round(bootstrap: str) -> dict[str, float]:
    """Send the records in each way; return the seconds of each."""
    return {
        "send": await asynchronous(bootstrap, many=False),
        "send_many": await asynchronous(bootstrap, many=True),
        "blocking send": await asyncio.to_thread(blocking, bootstrap, many=False),
        "blocking send_many": await asyncio.to_thread(blocking, bootstrap, many=True),
    }


async def main() -> None:
    """Print the medians and their ratios."""
    with tempfile.TemporaryDirectory() as directory:
        options = ClusterOptions(Path(directory), brokers=1, controllers=1, coordinators=0)
        async with Supervisor(options) as cluster:
            bootstrap = cluster.layout.brokers[0].url
            async with AsyncClient(bootstrap) as client:
                await client.create_topic(NewTopic(TOPIC, 1, 1))
            rounds = [await one_round(bootstrap) for _ in range(ROUNDS)]
    medians = {way: statistics.median(one[way] for one in rounds) for way in rounds[0]}
    for way, seconds in medians.items():
        rate = RECORDS / seconds / 1000
        print(f"{way}: {rate:.0f} K records/s, {seconds / medians['send']:.2f} of send's time")


if __name__ == "__main__":
    asyncio.run(main())
