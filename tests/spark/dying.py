"""A sink that dies at a chosen step as a killed process does: without any clean-up."""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from leadline_spark.source import LeadlineDataSource
from leadline_spark.write.publishing import WriteResult, publish_all
from leadline_spark.write.sink_settings import SinkSettings
from leadline_spark.write.writers import LeadlineStreamWriter
from tests.spark.gates import until

TASK = "a task that has staged"
BEFORE = "the driver before it publishes"
BETWEEN = "the driver between two partitions"
AFTER = "the driver after it has published"
PAUSE = "nobody: the commit waits for the test"
BATCH = 1
"""The micro-batch in which it happens."""


class DyingSink(LeadlineDataSource):
    """`format("dying")`: the options are those of leadline, `dieat`, and a `folder` for signs."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        plain = dict(options)
        self._place = plain.pop("dieat")
        self._folder = Path(plain.pop("folder"))
        super().__init__(plain)

    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002 - Spark's name
    ) -> LeadlineStreamWriter:
        settings = SinkSettings.of(self._options, streaming=True)
        return DyingWriter(settings, schema, self._place, self._folder)


class DyingWriter(LeadlineStreamWriter):
    """Dies once: the sign that it did is a file."""

    def __init__(
        self, settings: SinkSettings, schema: StructType, place: str, folder: Path
    ) -> None:
        super().__init__(settings, schema)
        self._place = place
        self._folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        message = super().write(iterator)
        if self._place == TASK and (self._folder / "batch-0").exists():
            os._exit(1)
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        if batchId < BATCH:
            (self._folder / "batch-0").touch()
        if batchId == BATCH and self._place == PAUSE:
            (self._folder / "reached").touch()
            until((self._folder / "open").exists)
        elif batchId == BATCH and self._place != AFTER:
            if self._place == BETWEEN:
                publish_all(self._settings, [_first_place(messages)], batchId)
            os._exit(1)
        super().commit(messages, batchId)
        if batchId == BATCH and self._place == AFTER:
            os._exit(1)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nobody is left to tidy up."""


def _first_place(messages: list[WriterCommitMessage | None]) -> WriteResult:
    """Return what all tasks staged for one of the partitions."""
    written = [message for message in messages if isinstance(message, WriteResult)]
    uploads = [upload for message in written for upload in message.staged]
    first = min(upload.topic_partition for upload in uploads)
    return replace(written[0], staged=tuple(one for one in uploads if one.topic_partition == first))
