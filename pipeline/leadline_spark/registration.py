"""Explicit registration, for sessions that do not find the source by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Register `format("leadline")` with a session, and change none of its settings.

    This is necessary for a package that comes by `--py-files`: Spark finds no sources in a zip.
    """
    # Imported here, because `import leadline_spark` must not load PySpark.
    from leadline_spark.source import LeadlineDataSource  # noqa: PLC0415 - see above

    spark.dataSource.register(LeadlineDataSource)
