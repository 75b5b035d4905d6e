"""Leadline for Apache Spark: `format("leadline")`, and the jobs built on it.

Executors need pyarrow, the standard library and the core of the client library. They send HTTP
requests to the leaders of partitions, and decode and encode record batches themselves.
"""

from leadline_spark.errors import LeadlineSparkError as LeadlineSparkError
from leadline_spark.registration import register as register
