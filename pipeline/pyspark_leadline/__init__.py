"""Spark imports every top-level module named `pyspark_*` and registers its `DefaultSource`.

So `format("leadline")` works wherever this package is installed, without `register(spark)`.
"""

from leadline_spark.source import LeadlineDataSource as DefaultSource

__all__ = ["DefaultSource"]
