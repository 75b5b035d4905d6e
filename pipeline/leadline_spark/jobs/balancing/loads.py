"""The loads of partitions, which Spark aggregates from samples of brokers.

A sample is one broker's answer to `GET /v1/load`. A file of samples, one on each line, is a history
from which a balance can be computed. Only the leader's numbers of a partition count, because the
leader sees all that is written and read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from leadline_client.wire import TopicPartition
from leadline_spark.jobs.balancing.balance_state import PartitionLoad, Replicas

SCHEMA = (
    "broker_id int, window_start_ms bigint, window_end_ms bigint, disk_total_bytes bigint, "
    "disk_free_bytes bigint, partitions array<struct<topic: string, topic_id: string, "
    "partition: int, is_leader: boolean, size_bytes: bigint, bytes_in: bigint, "
    "records_in: bigint, bytes_out: bigint>>"
)


def samples_of(spark: SparkSession, answers: Iterable[Any]) -> DataFrame:
    """Return answers of `GET /v1/load` as samples."""
    return spark.createDataFrame(list(answers), SCHEMA)


def read_samples(spark: SparkSession, paths: list[str]) -> DataFrame:
    """Return the samples in files, one answer on each line."""
    return spark.read.schema(SCHEMA).option("mode", "FAILFAST").json(paths)


def partition_loads(samples: DataFrame) -> DataFrame:
    """Return for each partition the size of a replica, and the bytes/s of its leader.

    `rate` is (bytes in + bytes out) / time, over all windows sampled at its leader. `size_bytes` is
    the latest one there.
    """
    rows = samples.select("*", sf.explode("partitions").alias("p")).where("p.is_leader")
    length = sf.col("window_end_ms") - sf.col("window_start_ms")
    moved = sf.col("p.bytes_in") + sf.col("p.bytes_out")
    return rows.groupBy(
        sf.col("p.topic").alias("topic"), sf.col("p.partition").alias("partition")
    ).agg(
        sf.max_by("p.size_bytes", "window_end_ms").alias("size_bytes"),
        sf.coalesce(sf.try_divide(sf.sum(moved) * 1000, sf.sum(length)), sf.lit(0.0)).alias("rate"),
    )


def merged_loads(
    loads: DataFrame, assignment: dict[TopicPartition, Replicas]
) -> list[PartitionLoad]:
    """Return the partitions of an assignment with their loads, 0 for those without a sample."""
    found = {
        TopicPartition(row["topic"], row["partition"]): (int(row["size_bytes"]), float(row["rate"]))
        for row in loads.collect()
    }
    return [
        PartitionLoad(topic_partition, replicas, *found.get(topic_partition, (0, 0.0)))
        for topic_partition, replicas in sorted(assignment.items())
    ]
