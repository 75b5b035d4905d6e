"""Count words as they are written: python examples/stream_words.py TOPIC [--once]."""

import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf


def show(counts: DataFrame, batch: int) -> None:
    """Print the words that came most often."""
    print(f"after micro-batch {batch}:")
    counts.orderBy(sf.desc("count"), "word").show()


def main(topic: str, *, once: bool = False) -> None:
    """Print a table of words after each micro-batch, until what was there is read, or for ever."""
    spark = (
        SparkSession.builder.appName("stream-words")
        .config("spark.sql.shuffle.partitions", 4)  # Spark takes 200, and long for a few words
        .getOrCreate()
    )
    lines = (
        spark.readStream.format("leadline")
        .option("bootstrap", os.environ["LEADLINE_BOOTSTRAP"])
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("columns", "value")
        .load()
    )
    words = lines.select(sf.explode(sf.split(lines.value.cast("string"), r"\s+")).alias("word"))
    counts = words.where("word != ''").groupBy("word").count()
    writer = counts.writeStream.foreachBatch(show).outputMode("complete")
    if once:
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], once="--once" in sys.argv)
