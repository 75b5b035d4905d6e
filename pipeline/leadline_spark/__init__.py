"""Leadline for Apache Spark: `format("leadline")`, and the jobs that stand on it.

Executors need pyarrow and the standard library, nothing else: they ask the leaders of partitions
over HTTP, and decode and encode record batches themselves.
"""

from leadline_spark.errors import LeadlineSparkError as LeadlineSparkError
from leadline_spark.registration import register as register
