"""`format("leadline")`: the class that Spark asks for readers and writers."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource


class LeadlineDataSource(DataSource):
    """A source and sink for topics, with the options and columns of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "leadline"
