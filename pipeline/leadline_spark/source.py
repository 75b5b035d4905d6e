"""`format("leadline")`: the class from which Spark gets readers and writers."""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from leadline_spark.cluster.cluster_client import ClusterClient, Connection
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.option_table import OPTIONS
from leadline_spark.options import Options
from leadline_spark.read.columns import spark_schema, wanted_columns
from leadline_spark.read.readers import (
    LeadlineBatchReader,
    LeadlineStreamReader,
    PinnedRanges,
    PushingBatchReader,
    pin,
)
from leadline_spark.read.subscription import SourceSubscription
from leadline_spark.tables.source import TableSource
from leadline_spark.write.sink_settings import SinkSettings
from leadline_spark.write.writers import LeadlineBatchWriter, LeadlineStreamWriter


class LeadlineDataSource(DataSource):
    """A source and sink for topics, with the options and columns of Spark's Kafka source.

    Spark keeps the instance on which it calls `schema`. That call pins the ranges of a batch read,
    so that all actions on a DataFrame see the same records.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = Options(OPTIONS, options)
        self._pinned: PinnedRanges | None = None
        self._table = TableSource(self._options) if "table" in self._options else None

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "leadline"

    def schema(self) -> StructType:
        """Return the columns of a read."""
        if self._table is not None:
            return self._table.schema()
        columns = wanted_columns(self._options)
        _refuse_write_guarantees(self._options)
        Connection.of(self._options)
        SourceSubscription.of(self._options)
        if self._options.text("snapshot") == "load":
            self._pin()
        return spark_schema(columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch reader."""
        self._check(schema)
        if self._table is not None:
            return self._table.reader()
        pushes = self._options.flag("pushFilters")
        kind = PushingBatchReader if pushes else LeadlineBatchReader
        return kind(self._options, self._pinned)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a stream reader."""
        self._check(schema)
        if self._table is not None:
            return self._table.stream_reader()
        return LeadlineStreamReader(self._options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return a batch writer. Spark passes the arguments by these names, and by position."""
        if overwrite:
            message = "A topic cannot be overwritten, only appended to: write with .mode('append')."
            raise LeadlineSparkError("LEADLINE_OPTION_CONFLICT", message)
        settings = SinkSettings.of(self._options, streaming=False)
        writer = LeadlineBatchWriter(settings, schema)
        # Tasks wait for brokers that are all down; for a wrong address nobody should wait.
        ClusterClient(settings.connection).metadata(["-"])
        return writer

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002 - Spark's name; complete output is appended, as to Kafka
    ) -> DataSourceStreamArrowWriter:
        """Return a stream writer."""
        return LeadlineStreamWriter(SinkSettings.of(self._options, streaming=True), schema)

    def _pin(self) -> None:
        """Pin the ranges of a batch read.

        Spark asks for the schema before it says whether the read is a batch, and bounds that a
        batch read refuses may be valid for a stream. `reader` pins again, and raises the error.
        """
        try:
            self._pinned = pin(self._options)
        except LeadlineSparkError:
            self._pinned = None

    def _check(self, schema: StructType) -> None:
        _refuse_write_guarantees(self._options)
        if self._table is not None:
            wanted = self._table.columns
        else:
            wanted = spark_schema(wanted_columns(self._options))
        if schema != wanted:
            message = (
                "The format leadline has its own schema: leave out .schema(...), and choose "
                f"columns by the option columns. Its schema is {wanted.simpleString()}"
            )
            raise LeadlineSparkError("LEADLINE_OPTION_CONFLICT", message)


def _refuse_write_guarantees(options: Options) -> None:
    """Refuse what makes a write exactly-once in a read, as nobody would notice that it is not.

    Other options of a write have no effect, so that a read and a write can share their options.
    """
    given = [name for name in ("txnAppId", "txnVersion") if name in options]
    if given:
        message = f"{', '.join(given)} has no effect on a read: give it to the write."
        raise LeadlineSparkError("LEADLINE_OPTION_CONFLICT", message)
