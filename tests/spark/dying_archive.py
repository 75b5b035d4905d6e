"""An archive sink that dies at a chosen step, as a killed process does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from leadline_spark.archive.sink import ArchivedFiles, ArchiveSink, ArchiveWriter
from leadline_spark.archive.storage import LocalStore
from tests.spark.gates import until

RENAMING, RENAMED, LISTED = PLACES = (
    "a task before it renames its file",
    "a task after it has renamed its file",
    "the driver after it has written the manifest",
)
PAUSE = "nobody: a task waits for the test"
BATCH = 1
"""The micro-batch in which it happens."""


def dying_archive(place: str, folder: Path) -> type[ArchiveSink]:
    """Return the archive's own sink, under its own name, which dies at a place."""

    class DyingArchive(ArchiveSink):
        def streamWriter(self, schema: StructType, overwrite: bool) -> ArchiveWriter:  # noqa: ARG002, N802 - as Spark calls it
            return DyingWriter(dict(self.options), place, folder)

    return DyingArchive


class DyingWriter(ArchiveWriter):
    """Dies in the second batch; signs in a folder tell how far it came."""

    def __init__(self, options: dict[str, str], place: str, folder: Path) -> None:
        super().__init__(options)
        self._place = place
        self._folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> ArchivedFiles:
        reached = (self._folder / "batch-0").exists()
        if reached and self._place == RENAMING:
            pending = LocalStore(Path(self._location)).begin("topic=t/partition=0")
            pending.file.write(b"half")
            pending.file.flush()
            os._exit(1)
        written = super().write(self._held(iterator) if self._place == PAUSE else iterator)
        if reached and self._place == RENAMED:
            os._exit(1)
        return written

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        super().commit(messages, batchId)
        (self._folder / f"batch-{batchId}").touch()
        if batchId == BATCH and self._place == LISTED:
            os._exit(1)

    def _held(self, iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Hold a task up after its first records, until the test lets it go on."""
        for batch in iterator:
            yield batch
            (self._folder / "reached").touch()
            until((self._folder / "open").exists)
