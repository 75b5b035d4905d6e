"""Stream writes: each micro-batch appended at once, or staged and published with its number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from leadline_spark.write.batch_writer import write_task
from leadline_spark.write.publishing import drop_all, publish_all
from leadline_spark.write.records import check_schema
from leadline_spark.write.sink_settings import SinkSettings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class LeadlineStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches. Spark makes a new one for each commit: it remembers nothing.

    The batch's number comes with the commit, and is the same when Spark runs the batch again from
    the checkpoint; that and the application's name are what the log remembers.
    """

    def __init__(self, settings: SinkSettings, schema: StructType) -> None:
        check_schema(schema, settings.topic)
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task: append them, or stage them for the commit."""
        return write_task(self._settings, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark passes it by this name
        """Publish what is staged as batch `batchId`."""
        if self._settings.app is not None:
            publish_all(self._settings, messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002 - see above
        """Delete what is staged; what was appended stays, and is appended again."""
        drop_all(self._settings, messages)
