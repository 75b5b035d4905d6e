"""A streaming program with a sink of its own, to be run as a process that is killed.

Usage: python -m tests.spark.programs BOOTSTRAP TOPIC FOLDER BATCH_TO_HOLD_IN ends|goes-on

Each micro-batch becomes one file, `batch-N`, that is renamed into place: the same batch again
is the same file, so that every record is in exactly one file only if batches are repeatable.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from leadline_spark import register
from tests.spark.sessions import local_session


def follow(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    folder: Path,
    *,
    ends: bool = False,
    hold_in: int = -1,
) -> None:
    """Follow a topic, ten offsets at a time, until killed or until all is read."""

    def keep(batch: DataFrame, number: int) -> None:
        rows = batch.selectExpr("partition", "CAST(value AS STRING)").collect()
        if number == hold_in:
            (folder / f"inside-{number}").touch()
            time.sleep(600)
        draft = folder / f"draft-{number}"
        draft.write_text("".join(f"{row[0]} {row[1]}\n" for row in rows))
        draft.rename(folder / f"batch-{number}")
        (folder / f"done-{number}").touch()

    reader = spark.readStream.format("leadline").option("bootstrap", bootstrap)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
    writer = reader.options(**options).load().writeStream.foreachBatch(keep)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    if ends:
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()


def main(words: list[str]) -> None:
    """Run the program."""
    bootstrap, topic, folder, hold_in, ends = words
    session = local_session(Path(folder) / "spark", master="local[1]")
    register(session)
    follow(session, bootstrap, topic, Path(folder), ends=ends == "ends", hold_in=int(hold_in))
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
