"""A program for `spark-submit`, which brings the package as a zip: it imports nothing else of ours.

Usage: submitted.py BOOTSTRAP TOPIC FOLDER

Writes FOLDER/found.json: what a lookup by name says before registration, and what a batch read and
a stream that ends find.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from leadline_spark import register


def main(bootstrap: str, topic: str, folder: Path) -> None:
    """Read the topic in both ways."""
    spark = SparkSession.builder.getOrCreate()
    try:
        spark.read.format("leadline").option("bootstrap", bootstrap).load()
        before = "found"
    except Exception as failure:  # an error of Java's that PySpark does not translate
        before = "not found" if "DATA_SOURCE_NOT_FOUND" in str(failure) else str(failure)
    register(spark)
    batch = spark.read.format("leadline").option("bootstrap", bootstrap)
    values = batch.option("subscribe", topic).load().selectExpr("CAST(value AS STRING) AS v")
    streamed: list[str] = []

    def keep(rows: DataFrame, _: int) -> None:
        streamed.extend(row[0] for row in rows.selectExpr("CAST(value AS STRING)").collect())

    stream = spark.readStream.format("leadline").option("bootstrap", bootstrap)
    stream = stream.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=40)
    writer = stream.load().writeStream.foreachBatch(keep).trigger(availableNow=True)
    writer.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()
    found = {
        "before": before,
        "batch": sorted(row[0] for row in values.collect()),
        "stream": sorted(streamed),
    }
    (folder / "found.json").write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
