"""The cluster as DataFrames: its history in parts and as a stream, its present."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from tests.spark.live import Live
from tests.support.services.up import until

pytestmark = pytest.mark.slow


def table(spark: SparkSession, live: Live, name: str, **options: str) -> DataFrame:
    reader = spark.read.format("leadline").option("bootstrap", live.bootstrap)
    return reader.option("table", name).options(**options).load()


def asked(live: Live, path: str, **params: Any) -> Any:
    """Ask the active controller."""

    async def ask() -> Any:
        answer = await live.cluster.get(await live.cluster.active_controller(), path, **params)
        return answer.raise_for_status()

    return live.run(ask())


def exported(live: Live, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in asked(live, f"/v1/export/{name}").text.splitlines()]


def test_the_audit_in_parts_is_what_was_exported_when_it_was_loaded(
    spark: SparkSession, live: Live, topic: str
) -> None:
    live.topic(topic, partitions=2)
    entries = exported(live, "audit")
    audit = table(spark, live, "audit", maxRecordsPerPartition=str(len(entries) // 2))
    live.topic(f"{topic}-later")
    rows = audit.withColumn("task", sf.spark_partition_id()).orderBy("id").collect()
    assert audit.count() == len(rows) >= len(entries), "the same for every action"
    assert len({row["task"] for row in rows}) >= 2
    for row, entry in zip(rows, entries, strict=False):
        found = row.asDict(recursive=True)
        assert json.loads(found["resource"]) == entry["resource"]
        assert round(found["at"].timestamp() * 1000) == entry["time"]
        for name in ("id", "time", "kind", "cause", "changes"):
            assert found[name] == entry[name]
    about = [row["kind"] for row in rows if row["topic"] == topic]
    assert about == ["topic_created"]


def test_the_present_is_what_the_cluster_says(spark: SparkSession, live: Live, topic: str) -> None:
    live.topic(topic, partitions=2)
    assert table(spark, live, "reassignments").collect() == []
    for name in ("partitions", "brokers"):
        found, told = at_one_version(spark, live, name)
        assert found == told
        assert len({row["metadata_version"] for row in found}) == 1, "all rows are of one version"
    groups = table(spark, live, "groups")
    assert groups.columns[:2] == ["coordinator_epoch", "group"]
    assert groups.count() == len(
        live.run(live.cluster.get("coordinator-1", "/v1/groups")).json()["groups"]
    )


def at_one_version(spark: SparkSession, live: Live, name: str) -> tuple[list[Any], list[Any]]:
    """Return a table as Spark reads it and as it is exported, while nothing changes in between.

    What other tests have killed may still be on its way back.
    """
    pairs: list[tuple[list[Any], list[Any]]] = []

    def looked() -> bool:
        found = [row.asDict(recursive=True) for row in table(spark, live, name).collect()]
        pairs.append((found, exported(live, name)))
        versions = [{row["metadata_version"] for row in rows} for rows in pairs[-1]]
        return versions[0] == versions[1]

    until(looked, "the table and its export are of one version")
    return pairs[-1]


def test_a_stream_of_the_audit_goes_on_where_it_ended(
    spark: SparkSession, live: Live, topic: str, tmp_path: Path
) -> None:
    limit = str(len(exported(live, "audit")) // 2 + 1)

    def follow() -> None:
        stream = spark.readStream.format("leadline").option("bootstrap", live.bootstrap)
        query = (
            stream.option("table", "audit")
            .option("maxOffsetsPerTrigger", limit)
            .option("columns", "id,kind,topic")
            .load()
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)

    def ids() -> list[int]:
        return sorted(row["id"] for row in spark.read.parquet(str(tmp_path / "out")).collect())

    follow()
    before = ids()
    assert before == list(range(len(before)))
    live.topic(topic)
    follow()
    after = ids()
    assert after == list(range(len(after)))
    assert len(after) > len(before)
    found = spark.read.parquet(str(tmp_path / "out")).where(sf.col("topic") == topic)
    assert [row["kind"] for row in found.collect()] == ["topic_created"]
