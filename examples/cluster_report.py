"""Write the cluster's report, and ask its tables: python examples/cluster_report.py DIRECTORY."""

import os
import sys

from pyspark.sql import SparkSession

from leadline_spark.jobs.analytics import job

QUESTION = """
SELECT topic, partition, count(*) AS changes, max(at) AS latest,
       array_join(sort_array(collect_set(change_cause)), ', ') AS causes
FROM leader_changes GROUP BY ALL ORDER BY changes DESC, topic, partition LIMIT 10
"""


def main(directory: str) -> None:
    """Print where the report is, and the partitions whose leader changed most."""
    if job.main(["--bootstrap", os.environ["LEADLINE_BOOTSTRAP"], "--out", directory]):
        sys.exit("the history could not be analysed")
    spark = SparkSession.builder.getOrCreate()
    tables = spark.read.parquet(f"{directory}/{job.TABLES}/leader_changes")
    tables.createOrReplaceTempView("leader_changes")
    spark.sql(QUESTION).show(truncate=False)


if __name__ == "__main__":
    main(sys.argv[1])
