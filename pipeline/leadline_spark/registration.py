"""Registration by hand, for sessions that do not find the source by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `format("leadline")` known to a session; its settings stay as they are.

    Needed where the package comes by `--py-files`: a zip is not looked through for sources.
    """
    # Here, as the package's first import must not cost those who never start Spark its weight.
    from leadline_spark.source import LeadlineDataSource  # noqa: PLC0415 - see above, it loads Spark

    spark.dataSource.register(LeadlineDataSource)
