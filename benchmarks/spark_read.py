"""Reading topics into Spark from a live cluster, beside Spark's own reading of lines of JSON.

Run `python benchmarks/spark_read.py [--rows 1000000] [--repeats 4]`. Three real brokers, a session
`local[2]`, a sink that drops rows. For values of 100 bytes and of 1 KB, in two partitions: millions
of rows a second with all columns, with offset and value only, and without the compiled checksum;
the same values as lines of JSON files, read by Spark itself; ratios to that. The best of the
repeats counts, which take turns, as others may use the machine. Then: how many requests planning
1,000 partitions takes, and an idle stream every second.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from leadline_client import batches
from leadline_client.payloads import OutgoingRecord
from leadline_client.stdlib_transport import StdlibTransport
from leadline_client.transport import Request, Response
from leadline_client.wire import NewTopic
from leadline_spark import register
from leadline_spark.option_table import OPTIONS
from leadline_spark.options import Options
from leadline_spark.read.readers import LeadlineStreamReader
from tests.spark.live import Live, live_cluster
from tests.spark.sessions import local_session

PARTITIONS = 2
BATCH_BYTES = 256 * 1024
IDLE_S = 10.0
MILLION = 1e6


def values(size: int, count: int, seed: int) -> Iterator[bytes]:
    """Yield values of letters, as text would be."""
    random = Random(seed)
    pool = bytes(random.choices(b"abcdefghijklmnopqrstuvwxyz    ", k=1 << 20))
    for _ in range(count):
        begin = random.randrange(len(pool) - size)
        yield pool[begin : begin + size]


def fill(live: Live, topic: str, size: int, rows: int, folder: Path) -> None:
    """Write the same values to a topic and to files with lines of JSON, one a partition."""

    async def produce() -> None:
        await live.client.create_topic(NewTopic(topic, PARTITIONS, 3))
        await live.cluster.in_sync(topic, 3)
        for partition in range(PARTITIONS):
            each = max(1, BATCH_BYTES // (size + 30))
            with (folder / f"{partition}.json").open("w") as lines:
                await write_partition(live, topic, partition, size, rows // PARTITIONS, each, lines)

    folder.mkdir()
    live.run(produce(), 600)


async def write_partition(
    live: Live, topic: str, partition: int, size: int, rows: int, each: int, lines: Any
) -> None:
    """Write one partition and its file."""
    found = values(size, rows, partition)
    for first in range(0, rows, each):
        records = [
            OutgoingRecord(next(found), b"%016d" % n, (), None)
            for n in range(first, min(first + each, rows))
        ]
        body = batches.encode(records, now_ms=int(time.time() * 1_000))
        await live.client.produce_batches(topic, partition, body)
        for number, record in enumerate(records, first):
            assert record.key is not None
            assert record.value is not None
            row: dict[str, Any] = {"key": record.key.decode(), "value": record.value.decode()}
            row |= {"topic": topic, "partition": partition, "offset": number}
            row |= {"timestamp": "2026-01-01T00:00:00.000Z", "timestampType": 0}
            lines.write(json.dumps(row) + "\n")


def best(runs: dict[str, Callable[[], DataFrame]], rows: int, repeats: int) -> dict[str, float]:
    """Return millions of rows a second, of the quickest of the runs, which take turns."""
    took: dict[str, float] = {}
    for _ in range(repeats):
        for name, frame in runs.items():
            begun = time.monotonic()
            frame().write.format("noop").mode("overwrite").save()
            took[name] = min(took.get(name, math.inf), time.monotonic() - begun)
    return {name: rows / MILLION / least for name, least in took.items()}


def measure(spark: SparkSession, live: Live, size: int, rows: int, repeats: int, at: Path) -> None:
    """Print the figures for one size of values."""
    topic = f"bytes-{size}"
    fill(live, topic, size, rows, at / topic)
    reader = spark.read.format("leadline").option("bootstrap", live.bootstrap)
    reader = reader.option("subscribe", topic)
    schema = "key STRING, value STRING, topic STRING, partition INT, offset LONG, "
    schema += "timestamp TIMESTAMP, timestampType INT"
    runs: dict[str, Callable[[], DataFrame]] = {
        "lines of JSON, by Spark": lambda: spark.read.schema(schema).json(str(at / topic)),
        "all columns": lambda: reader.option("decoder", "auto").load(),
        "all columns, pure Python": lambda: reader.option("decoder", "python").load(),
        "offset and value": lambda: (
            reader.option("decoder", "auto").option("columns", "offset,value").load()
        ),
    }
    for frame in runs.values():
        assert frame().count() == rows
    found = best(runs, rows, repeats)
    base = found["lines of JSON, by Spark"]
    for name, rate in found.items():
        print(
            f"{size:5} B  {name:26} {rate:5.2f} M rows/s  {rate * size:6.0f} MB/s of values"
            f"  {rate / base:4.2f} x JSON"
        )


def count_requests(work: Callable[[], None]) -> int:
    """Return how many HTTP requests the connector sends meanwhile, from this process."""
    sent = 0
    real = StdlibTransport.send

    def counted(transport: StdlibTransport, request: Request) -> Response:
        nonlocal sent
        sent += 1
        return real(transport, request)

    with patch.object(StdlibTransport, "send", counted):
        work()
    return sent


def requests(live: Live) -> None:
    """Print what planning and waiting ask of the cluster."""

    async def make() -> None:
        await live.client.create_topic(NewTopic("wide", 1_000, 1))
        await live.cluster.in_sync("wide", 1)

    live.run(make(), 120)
    given = {"bootstrap": live.bootstrap, "subscribe": "wide", "startingOffsets": "earliest"}
    reader = LeadlineStreamReader(Options(OPTIONS, given))
    start: dict[str, Any] = {}

    def plan() -> None:
        start.update(reader.initialOffset())

    begun = time.monotonic()
    asked = count_requests(plan)
    took = (time.monotonic() - begun) * 1_000
    print(f"planning 1,000 partitions: {asked} requests, {took:.0f} ms")

    def idle() -> None:
        until = time.monotonic() + IDLE_S
        while time.monotonic() < until:
            reader.latestOffset(start, reader.getDefaultReadLimit())

    print(f"an idle stream: {count_requests(idle) / IDLE_S:.1f} requests/s")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of 100 bytes")
    parser.add_argument("--repeats", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = local_session(folder / "spark")
        register(spark)
        try:
            with live_cluster(folder / "cluster") as live:
                measure(spark, live, 100, options.rows, options.repeats, folder)
                measure(spark, live, 1_024, options.rows // 5, options.repeats, folder)
                requests(live)
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
