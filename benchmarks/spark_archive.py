"""An archive of a large topic, checked, compacted, replayed into a new topic, and compared.

Run `python benchmarks/spark_archive.py [--records 5000000] [--size 100] [--partitions 4]`; with
five million records of 100 bytes it takes some minutes and 3 GB of disk. It ends with an error
unless the archive is sound and complete, and the new topic holds the same records: keys, values,
headers, timestamps and order, by a checksum over every record with its place. The ratio is to Spark
reading the same topic and dropping what it reads, in the same run.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as every Spark program has it

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from leadline_spark import register
from leadline_spark.jobs import archive, compact, replay, verify
from tests.spark.live import Live, live_cluster
from tests.spark.sessions import local_session

SOURCE, RESTORED = "measured", "restored"


def fill(spark: SparkSession, live: Live, records: int, size: int, partitions: int) -> None:
    """Make a topic with records of all kinds: some without key or value, some with headers."""
    live.topic(SOURCE, partitions=partitions)
    text = f"substr(repeat(concat(sha2(string(id), 256), ' '), {size // 65 + 1}), 1, {size})"
    rows = spark.range(0, records, 1, partitions).selectExpr(
        "IF(id % 5 = 0, NULL, CAST(format_string('key-%012d', id) AS BINARY)) AS key",
        f"IF(id % 1000 = 0, NULL, CAST({text} AS BINARY)) AS value",
        "IF(id % 100 = 0, array(struct('n' AS key, CAST(string(id) AS BINARY) AS value)), NULL) "
        "AS headers",
        f"CAST(id % {partitions} AS INT) AS partition",
    )
    writer = rows.write.format("leadline").option("bootstrap", live.bootstrap)
    writer.option("topic", SOURCE).mode("append").save()


def load(spark: SparkSession, live: Live, topic: str) -> DataFrame:
    """Return a topic with everything that its records have."""
    reader = spark.read.format("leadline").option("bootstrap", live.bootstrap)
    return reader.option("subscribe", topic).option("includeHeaders", "true").load()


def checksums(frame: DataFrame) -> list[Row]:
    """Return for each partition the number of records and two sums over each with its offset."""
    kept = ("offset", "timestamp", "timestampType", "key", "value", "headers")
    digest = F.xxhash64(*(F.coalesce(F.col(one).cast("string"), F.lit("\0")) for one in kept))
    sums = frame.groupBy("partition").agg(
        F.count("*").alias("records"), F.bit_xor(digest), F.sum(digest.cast("decimal(38,0)"))
    )
    return sums.orderBy("partition").collect()


def timed(what: str, records: int, work: Callable[[], object]) -> float:
    """Do something, print how fast it was, and return the seconds."""
    begun = time.perf_counter()
    done = work()
    seconds = time.perf_counter() - begun
    assert done in (0, None), f"{what} ended with {done}"
    print(f"{what:<12} {seconds:8.1f} s {records / seconds / 1e6:8.3f} M records/s", flush=True)
    return seconds


def measure(spark: SparkSession, live: Live, folder: Path, asked: argparse.Namespace) -> None:
    """Fill, archive, check, compact, check, replay, compare."""
    place, records = str(folder / "archive"), asked.records
    cluster = ["--bootstrap", live.bootstrap]
    timed("fill", records, lambda: fill(spark, live, records, asked.size, asked.partitions))
    plain = load(spark, live, SOURCE).write.format("noop").mode("overwrite")
    reading = timed("read", records, plain.save)
    words = [*cluster, "--topics", SOURCE, "--to", place]
    words += ["--max-offsets-per-trigger", str(asked.batch)]
    archiving = timed("archive", records, lambda: archive.main(words))
    check = [place, *cluster, "--complete", "--rows"]
    timed("verify", records, lambda: verify.main(check))
    timed("compact", records, lambda: compact.main([place]))
    timed("verify", records, lambda: verify.main(check))
    words = [place, *cluster, "--topic", SOURCE, "--into", RESTORED]
    timed("replay", records, lambda: replay.main(words))
    found = [checksums(load(spark, live, topic)) for topic in (SOURCE, RESTORED)]
    assert found[0] == found[1], f"{SOURCE} and {RESTORED} differ: {found}"
    assert sum(row.records for row in found[0]) == records
    print(
        f"byte for byte the same; archiving took {archiving / reading:.1f} times as long as reading"
    )


def main() -> None:
    """Measure on a cluster of this run's own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--batch", type=int, default=1_000_000, help="records in a micro-batch")
    asked = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.2f}")
    with tempfile.TemporaryDirectory() as name:
        spark = local_session(Path(name), spark__ui__showConsoleProgress="false")
        register(spark)
        try:
            with live_cluster(Path(name) / "cluster") as live:
                # Starting the cluster has forked; see the fixture `active` in test_write.py.
                spark.createDataFrame([(1,)], "n int")
                measure(spark, live, Path(name), asked)
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
