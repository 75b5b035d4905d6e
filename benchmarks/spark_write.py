"""Spark writes to live brokers, as a ratio to Spark handing the same rows to Python for nothing.

Run `python benchmarks/spark_write.py [--rows 1000000] [--rounds 3] [--brokers 3]`. Rows of 100
bytes and 1 KiB with 16-byte keys come from Spark's cache, in two tasks. The baseline is a Python
sink that takes the Arrow batches and drops them. Then, to a topic of four partitions: appended with
acks=1 and acks=all, compressed, and staged and published exactly once. Rounds take turns, so that a
slow moment of the machine hits all alike; the best one counts. MB/s are of values only.

Last, the codec on one core without Spark, as a ratio to the client's compiled encoder.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from leadline_client import batches
from leadline_client.columnar.encode import Records, encode
from leadline_client.payloads import OutgoingRecord
from leadline_spark import register
from tests.spark.live import Live, live_cluster
from tests.spark.sessions import local_session

SIZES = (100, 1024)
PARTITIONS = 4
CODEC_ROWS = 10_000


class Nothing(DataSource):
    """A sink that drops what it gets."""

    @classmethod
    def name(cls) -> str:
        """Return its name."""
        return "nothing"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ARG002 - Spark's names
        """Return the writer."""
        return NothingWriter()


class NothingWriter(DataSourceArrowWriter):
    """Takes every batch and keeps none."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Drain the rows."""
        for _ in iterator:
            pass
        return WriterCommitMessage()


def frame_of(spark: SparkSession, rows: int, size: int) -> DataFrame:
    """Return cached rows of a 16-byte key and a word-like value."""
    pad = f"substr(repeat(concat(sha2(string(id), 256), ' '), {size // 65 + 1}), 1, {size})"
    frame = spark.range(0, rows, 1, 2).selectExpr(
        "CAST(format_string('key-%012d', id) AS BINARY) AS key", f"CAST({pad} AS BINARY) AS value"
    )
    frame = frame.cache()
    frame.count()
    return frame


def drop(frame: DataFrame) -> None:
    """Write to the sink that drops everything."""
    frame.write.format("nothing").mode("append").save()


def write(frame: DataFrame, bootstrap: str, topic: str, options: dict[str, str]) -> None:
    """Write to the cluster."""
    writer = frame.write.format("leadline").option("bootstrap", bootstrap).option("topic", topic)
    writer.options(**options).mode("append").save()


def ways(live: Live, topic: str, frame: DataFrame) -> dict[str, Callable[[int], None]]:
    """Return what is measured; each is called with the number of the round."""

    def to(options: dict[str, str]) -> Callable[[int], None]:
        return lambda _: write(frame, live.bootstrap, topic, options)

    def once(number: int) -> None:
        named = {"txnAppId": f"bench-{topic}", "txnVersion": str(number)}
        write(frame, live.bootstrap, topic, named)

    return {
        "a sink that drops everything": lambda _: drop(frame),
        "acks=1": to({"acks": "1"}),
        "acks=all": to({}),
        "acks=all, lz4": to({"compression": "lz4"}),
        "acks=all, zstd": to({"compression": "zstd"}),
        "exactly once": once,
    }


def measure(live: Live, spark: SparkSession, size: int, asked: argparse.Namespace) -> None:
    """Print the rows of one size."""
    count = asked.rows if size == SIZES[0] else asked.rows // 5
    topic = live.topic(f"bench-{size}", partitions=PARTITIONS, replicas=asked.brokers)
    frame = frame_of(spark, count, size)
    found: dict[str, list[float]] = {}
    for number in range(asked.rounds + 1):
        for name, run in ways(live, topic, frame).items():
            began = time.perf_counter()
            run(number)
            if number:  # the first round warms up
                found.setdefault(name, []).append(time.perf_counter() - began)
    frame.unpersist()
    least = min(found["a sink that drops everything"])
    print(f"\n{count} rows of {size} bytes")
    print(f"{'':32} {'M rows/s':>9} {'MB/s':>7} {'ratio':>6}")
    for name, seconds in found.items():
        best = min(seconds)
        print(
            f"{name:32} {count / best / 1e6:9.3f} {count * size / best / 1e6:7.0f} "
            f"{least / best:6.2f}"
        )


def best_of(call: Callable[[], object], rounds: int = 10) -> float:
    """Return the fewest seconds of processor time that a call took."""
    seconds = []
    for _ in range(rounds):
        began = time.process_time()
        call()
        seconds.append(time.process_time() - began)
    return min(seconds)


def codec() -> None:
    """Print what a core encodes, and the client's encoder beside it."""
    print(f"\n{'encode on one core':32} {'M rows/s':>9} {'MB/s':>7} {'ratio':>6}")
    for size in SIZES:
        values = [os.urandom(size) for _ in range(CODEC_ROWS)]
        keys = [b"key-%012d" % number for number in range(CODEC_ROWS)]
        records = [OutgoingRecord(value, key) for value, key in zip(values, keys, strict=True)]
        columns = Records(pa.array(keys, pa.binary()), pa.array(values, pa.binary()))
        compiled = best_of(partial(batches.encode, records, now_ms=5))
        for name, seconds in (
            (f"the client's, {size} bytes", compiled),
            (f"Arrow's kernels, {size} bytes", best_of(partial(encode, columns, now_ms=5))),
        ):
            rate = CODEC_ROWS / seconds
            print(f"{name:32} {rate / 1e6:9.2f} {rate * size / 1e6:7.0f} {compiled / seconds:6.2f}")


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--brokers", type=int, default=3)
    arguments = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.2f}")
    with tempfile.TemporaryDirectory() as name:
        spark = local_session(Path(name), spark__ui__showConsoleProgress="false")
        register(spark)
        spark.dataSource.register(Nothing)
        try:
            with live_cluster(Path(name) / "cluster", brokers=arguments.brokers) as live:
                # Starting the cluster has forked; see the fixture `active` in test_write.py.
                spark.createDataFrame([(1,)], "n int")
                for size in SIZES:
                    measure(live, spark, size, arguments)
        finally:
            spark.stop()
    codec()


if __name__ == "__main__":
    main()
