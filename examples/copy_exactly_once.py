"""Copy a topic, each record once: python examples/copy_exactly_once.py FROM TO STATE_DIRECTORY.

Kill it wherever you like, and start it again: the checkpoint below STATE_DIRECTORY and `txnAppId`
belong together, and make sure that nothing is lost or written twice.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main(source: str, target: str, state: str) -> None:
    """Copy what is there, with keys, headers and partitions as they are."""
    spark = SparkSession.builder.appName("copy-exactly-once").getOrCreate()
    bootstrap = os.environ["LEADLINE_BOOTSTRAP"]
    records = (
        spark.readStream.format("leadline")
        .option("bootstrap", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
    )
    (
        records.select("key", "value", "headers", "partition")
        .writeStream.format("leadline")
        .option("bootstrap", bootstrap)
        .option("topic", target)
        .option("txnAppId", f"copy-of-{source}-to-{target}")
        .option("checkpointLocation", str(Path(state) / "checkpoint"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    main(*sys.argv[1:4])
