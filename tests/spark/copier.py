"""A program that copies a topic exactly once, to be run as a process that is killed.

Usage: python -m tests.spark.copier BOOTSTRAP SOURCE TARGET FOLDER

It ends when everything is copied. Spark's own log of commits, `checkpoint/commits` in the folder,
shows its progress.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from leadline_spark import register
from tests.spark.sessions import local_session

OFFSETS_PER_BATCH = 2_000


def copy(spark: SparkSession, bootstrap: str, source: str, target: str, folder: Path) -> None:
    """Copy until nothing is left."""
    reader = spark.readStream.format("leadline").option("bootstrap", bootstrap)
    reader = reader.option("subscribe", source).option("startingOffsets", "earliest")
    reader = reader.option("maxOffsetsPerTrigger", str(OFFSETS_PER_BATCH))
    writer = reader.load().select("key", "value").writeStream.format("leadline")
    writer = writer.option("bootstrap", bootstrap).option("topic", target)
    writer = writer.option("txnAppId", f"copy-to-{target}")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def main(words: list[str]) -> None:
    """Run the program."""
    bootstrap, source, target, folder = words
    session = local_session(Path(folder) / "spark")
    register(session)
    session.createDataFrame([(1,)], "n int")
    copy(session, bootstrap, source, target, Path(folder))
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
