"""Reading topics into Spark from a live cluster, beside Spark's own readers of the same records.

Run `python benchmarks/spark_read.py [--rows 3000000] [--repeats 5]`. Three real brokers, a session
`local[2]`, a sink that drops rows. For values of 100 bytes and of 1 KB, in two partitions, with all
columns: Spark reads lines of JSON from files; its own Kafka source reads from Apache Kafka 3.9,
with three brokers and three replicas; `format("leadline")` reads from a cluster, also with offset
and value only, and without the compiled checksum. All take turns, after two rounds that do not
count, because the JVM compiles meanwhile. Printed are medians: of the rows a second, of the
processor time for a row that Spark with its workers takes, and of the ratios to JSON and Kafka in
the same round. Goals for all columns: 2.5 times JSON at 100 B and 1.2 times at 1 KB; as fast as
Kafka. Then: how many requests planning 1,000 partitions takes, and an idle stream every second.

Maven fetches Kafka and Spark's source for it, as `peers/kafka/jars.py` says. Where it cannot, one
line says so, and the rest is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final, NamedTuple, TextIO
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
from peers.kafka.jars import NotAvailable, kafka_jars, spark_connector_jars
from peers.kafka.live import LiveKafka, live_kafka
from peers.processes import cpu_s, descendants
from tests.spark.live import Live, live_cluster
from tests.spark.sessions import local_session

PARTITIONS = 2
BATCH_BYTES = 256 * 1024
IDLE_S = 10.0
WARM_UP_ROUNDS = 2
MILLION = 1e6
JSON, KAFKA = "lines of JSON, by Spark", "Kafka, by Spark"
SCHEMA = (
    "key STRING, value STRING, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP, "
    "timestampType INT"
)
# What the tests' session switches off because their tables are small.
COMPILED: Final = {
    "spark__sql__codegen__wholeStage": "true",
    "spark__sql__codegen__factoryMode": "FALLBACK",
}


class Turn(NamedTuple):
    """What one read took: the time on the clock, and the processor time of Spark (seconds)."""

    wall_s: float
    cpu_s: float


def values(size: int, count: int, seed: int) -> Iterator[bytes]:
    """Yield values of letters, as text would be."""
    random = Random(seed)
    pool = bytes(random.choices(b"abcdefghijklmnopqrstuvwxyz    ", k=1 << 20))
    for _ in range(count):
        begin = random.randrange(len(pool) - size)
        yield pool[begin : begin + size]


def batches_of(size: int, rows: int, partition: int) -> Iterator[list[tuple[bytes, bytes]]]:
    """Yield the keys and values of a partition's records, by batch."""
    each = max(1, BATCH_BYTES // (size + 30))
    found = values(size, rows, partition)
    for first in range(0, rows, each):
        yield [(b"%016d" % n, next(found)) for n in range(first, min(first + each, rows))]


def fill(live: Live, topic: str, size: int, rows: int, folder: Path) -> None:
    """Write the same values to a topic and to files with lines of JSON, one a partition."""

    async def produce() -> None:
        await live.client.create_topic(NewTopic(topic, PARTITIONS, 3))
        await live.cluster.in_sync(topic, 3)
        for partition in range(PARTITIONS):
            with (folder / f"{partition}.json").open("w") as lines:
                await write_partition(live, topic, partition, size, rows // PARTITIONS, lines)

    folder.mkdir()
    live.run(produce(), 900)


async def write_partition(
    live: Live, topic: str, partition: int, size: int, rows: int, lines: TextIO
) -> None:
    """Write one partition and its file."""
    for pairs in batches_of(size, rows, partition):
        records = [OutgoingRecord(value, key) for key, value in pairs]
        body = batches.encode(records, now_ms=int(time.time() * 1_000))
        await live.client.produce_batches(topic, partition, body)
        for key, value in pairs:
            row: dict[str, Any] = {"key": key.decode(), "value": value.decode()}
            row |= {"topic": topic, "partition": partition, "offset": int(key)}
            row |= {"timestamp": "2026-01-01T00:00:00.000Z", "timestampType": 0}
            lines.write(json.dumps(row) + "\n")


def take_turns(
    spark: SparkSession, runs: Mapping[str, Callable[[], DataFrame]], repeats: int
) -> dict[str, list[Turn]]:
    """Let each of the runs drop all of its rows, in turn, and return what each turn took."""
    found: dict[str, list[Turn]] = {name: [] for name in runs}
    for number in range(-WARM_UP_ROUNDS, repeats):
        for name, frame in runs.items():
            begun, used = time.monotonic(), spark_cpu_s(spark)
            frame().write.format("noop").mode("overwrite").save()
            turn = Turn(time.monotonic() - begun, spark_cpu_s(spark) - used)
            if number >= 0:
                found[name].append(turn)
    return found


def spark_cpu_s(spark: SparkSession) -> float:
    """Return the processor time of the JVM and of Spark's workers in Python."""
    gateway: Any = spark.sparkContext._gateway
    jvm = gateway.proc.pid
    return sum(cpu_s(pid) for pid in (jvm, *descendants(jvm)))


def measure(
    spark: SparkSession,
    live: Live,
    kafka: LiveKafka | None,
    size: int,
    rows: int,
    repeats: int,
    at: Path,
) -> None:
    """Print the figures for one size of values."""
    topic = f"bytes-{size}"
    fill(live, topic, size, rows, at / topic)
    reader = spark.read.format("leadline").option("bootstrap", live.bootstrap)
    reader = reader.option("subscribe", topic)
    runs: dict[str, Callable[[], DataFrame]] = {
        JSON: lambda: spark.read.schema(SCHEMA).json(str(at / topic)),
        "all columns": lambda: reader.option("decoder", "auto").load(),
        "all columns, pure Python": lambda: reader.option("decoder", "python").load(),
        "offset and value": lambda: (
            reader.option("decoder", "auto").option("columns", "offset,value").load()
        ),
    }
    if kafka is not None:
        each = rows // PARTITIONS
        kafka.fill(topic, [batches_of(size, each, number) for number in range(PARTITIONS)])
        from_kafka = spark.read.format("kafka").option("subscribe", topic)
        from_kafka = from_kafka.option("kafka.bootstrap.servers", kafka.bootstrap)
        runs[KAFKA] = from_kafka.load
    for frame in runs.values():
        assert frame().count() == rows
    report(size, rows, take_turns(spark, runs, repeats))


def report(size: int, rows: int, found: Mapping[str, list[Turn]]) -> None:
    """Print the medians of each run, and of the ratios to the others of the same round."""
    for name, turns in found.items():
        rate = median(rows / MILLION / turn.wall_s for turn in turns)
        cost = median(turn.cpu_s * MILLION / rows for turn in turns)
        ratios = "  ".join(
            f"{median(other.wall_s / turn.wall_s for other, turn in pairs):4.2f} x {short}"
            for short, base in (("JSON", JSON), ("Kafka", KAFKA))
            if (pairs := list(zip(found.get(base, []), turns, strict=False)))
        )
        print(
            f"{size:5} B  {name:26} {rate:5.2f} M rows/s  {rate * size:6.0f} MB/s of values  "
            f"{cost:5.2f} µs of CPU  {ratios}",
            flush=True,
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
    parser.add_argument("--rows", type=int, default=3_000_000, help="rows of 100 bytes")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        connector, beside = kafka_files(folder / "kafka")
        spark = local_session(folder / "spark", **COMPILED, spark__jars=connector)
        register(spark)
        try:
            with live_cluster(folder / "cluster") as live, beside as kafka:
                for size, rows in ((100, options.rows), (1_024, options.rows // 5)):
                    measure(spark, live, kafka, size, rows, options.repeats, folder)
                requests(live)
        finally:
            spark.stop()
    print("load average", " ".join(f"{one:.1f}" for one in os.getloadavg()))


def kafka_files(folder: Path) -> tuple[str, AbstractContextManager[LiveKafka | None]]:
    """Return the jars of Spark's Kafka source and a Kafka; nothing where they cannot be had."""
    try:
        jars, connector = kafka_jars(), spark_connector_jars()
    except NotAvailable as problem:
        print(f"{KAFKA}: SKIPPED, not measured: {problem}")
        return "", nullcontext()
    return ",".join(map(str, sorted(connector.glob("*.jar")))), live_kafka(folder, jars)


if __name__ == "__main__":
    main()
