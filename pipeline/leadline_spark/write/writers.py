"""The writers that Spark drives: `LeadlineBatchWriter` and `LeadlineStreamWriter`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from leadline_spark.write.publishing import drop_all, publish_all
from leadline_spark.write.records import check_schema
from leadline_spark.write.sink_settings import SinkSettings
from leadline_spark.write.write_task import write_task

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class _TaskWriter:
    """What tasks do is the same in batches and in streams."""

    def __init__(self, settings: SinkSettings, schema: StructType) -> None:
        check_schema(schema, settings.topic, keep_timestamps=settings.keep_timestamps)
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task: append them, or stage them for the commit."""
        return write_task(self._settings, iterator)


class LeadlineBatchWriter(_TaskWriter, DataSourceArrowWriter):
    """Writes a DataFrame once. Pickled into every task; the driver commits with its own copy."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what is staged."""
        if self._settings.version is not None:
            publish_all(self._settings, messages, self._settings.version)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete what is staged. Appended records stay."""
        drop_all(self._settings, messages)


class LeadlineStreamWriter(_TaskWriter, DataSourceStreamArrowWriter):
    """Writes micro-batches. It has no state, because Spark makes a new one for each commit.

    Spark passes the number of the micro-batch to the commit, and the same number when it repeats
    the micro-batch from the checkpoint. The log holds that number and the application's name.
    """

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark passes it by this name
        """Publish what is staged as batch `batchId`."""
        if self._settings.app is not None:
            publish_all(self._settings, messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002 - see above
        """Delete what is staged. Appended records stay, and a repeated batch appends them again."""
        drop_all(self._settings, messages)
