"""Count a topic's records: python examples/batch_read.py TOPIC."""

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf


def main(topic: str) -> None:
    """Read what the topic holds now, and print a line for each partition."""
    spark = SparkSession.builder.appName("batch-read").getOrCreate()
    records = (
        spark.read.format("leadline")
        .option("bootstrap", os.environ["LEADLINE_BOOTSTRAP"])
        .option("subscribe", topic)
        .load()
    )
    by_partition = records.groupBy("partition").agg(
        sf.count("*").alias("records"),
        sf.min("timestamp").alias("first"),
        sf.max("timestamp").alias("last"),
        sf.sum(sf.length("value")).alias("bytes"),
    )
    by_partition.orderBy("partition").show(truncate=False)


if __name__ == "__main__":
    main(sys.argv[1])
