"""Archive a topic, check that, query it: python examples/archive_topic.py TOPIC DIRECTORY."""

import os
import sys

from pyspark.sql import SparkSession

from leadline_spark.jobs import archive, verify


def main(topic: str, directory: str) -> None:
    """Do what cron would do every hour, and then look into the files."""
    bootstrap = ["--bootstrap", os.environ["LEADLINE_BOOTSTRAP"]]
    if archive.main([*bootstrap, "--topics", topic, "--to", directory]):
        sys.exit("the archive was not written")
    if verify.main([directory, *bootstrap]):
        sys.exit("the archive is not whole")
    spark = SparkSession.builder.getOrCreate()
    files = spark.read.parquet(f"{directory}/topic={topic}")
    files.groupBy("partition").count().orderBy("partition").show()


if __name__ == "__main__":
    main(*sys.argv[1:3])
