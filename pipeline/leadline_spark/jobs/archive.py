"""Archive topics as Parquet, exactly once.

  leadline spark archive --topics orders,payments --to /archive
  spark-submit … leadline_spark/jobs/archive.py --bootstrap URL --topics orders --to /archive

Ends when everything is archived that was there when it began, as cron wants it; with --continuous
it goes on until it is stopped. Whatever ends it, however hard: the next run goes on, and nothing
is lost or doubled. Offsets are in Spark's checkpoint, files are named after offsets, and a manifest
lets the files of a batch count all at once. Without the checkpoint, too, the next run begins where
the archive ends.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from leadline_spark.archive import catalog
from leadline_spark.archive.manifest import Place
from leadline_spark.archive.sink import COLUMNS, FORMAT, ArchiveSink
from leadline_spark.archive.storage import Store, absolute, open_store, read, sweep, write
from leadline_spark.cluster.cluster import Cluster, Metadata
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.jobs import command
from leadline_spark.read.offsets import EARLIEST
from leadline_spark.registration import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RUN_FILE = "leadline-archive.json"


def parser() -> argparse.ArgumentParser:
    """Return what understands the command line."""
    told = command.job_parser("archive", __doc__)
    command.add_cluster(told)
    told.add_argument("--topics", required=True, metavar="NAME[,NAME]")
    told.add_argument("--to", required=True, metavar="DIR", help="directory or URI of the archive")
    told.add_argument("--checkpoint", metavar="DIR", help="default: _checkpoint in the archive")
    told.add_argument(
        "--max-offsets-per-trigger",
        type=int,
        default=1_000_000,
        metavar="N",
        help="records in one batch at most, over all partitions (default: %(default)s)",
    )
    told.add_argument("--min-partitions", type=int, metavar="N", help="tasks in a batch, about")
    told.add_argument("--continuous", action="store_true", help="go on until stopped")
    told.add_argument(
        "--interval",
        default="10 seconds",
        help="between the batches of --continuous (default: %(default)s)",
    )
    return told


def main(argv: Sequence[str] | None = None) -> int:
    """Archive, and print what the archive holds then. The exit code is 1 where that failed."""
    asked = parser().parse_args(argv)

    def job() -> int:
        start(command.session("leadline archive"), asked).awaitTermination()
        entries = catalog.holdings(open_store(asked.to))
        rows, size = sum(one.rows for one in entries), sum(one.bytes for one in entries)
        command.report({"files": len(entries), "rows": rows, "bytes": size})
        return command.DONE

    return command.run(job)


def start(
    spark: SparkSession, asked: argparse.Namespace, sink: type[ArchiveSink] = ArchiveSink
) -> StreamingQuery:
    """Start the query. Raises LeadlineSparkError for an archive that it may not write to."""
    location = absolute(asked.to)
    checkpoint = absolute(asked.checkpoint or f"{location.rstrip('/')}/_checkpoint")
    topics = [name.strip() for name in asked.topics.split(",") if name.strip()]
    cluster = command.options_of(asked)
    metadata = Cluster(command.connection_of(asked)).metadata(topics)
    store = open_store(location)
    sweep(store)
    run, ends = resume(store, open_store(checkpoint))
    options = cluster | {
        "subscribe": ",".join(topics),
        "columns": ",".join(COLUMNS),
        "startingOffsets": starting_offsets(metadata, topics, ends),
        "maxOffsetsPerTrigger": str(asked.max_offsets_per_trigger),
    }
    if asked.min_partitions:
        options["minPartitions"] = str(asked.min_partitions)
    register(spark)
    spark.dataSource.register(sink)
    # Makes the session the active one of this thread: Spark looks for a stream's sink in no other.
    spark.createDataFrame([(0,)], "n int")
    records = spark.readStream.format("leadline").options(**options).load()
    place = {"path": location, "run": str(run), "checkpointLocation": checkpoint}
    writer = records.writeStream.format(FORMAT).options(**cluster, **place)
    if asked.continuous:
        return writer.trigger(processingTime=asked.interval).start()
    return writer.trigger(availableNow=True).start()


def resume(store: Store, checkpoint: Store) -> tuple[int, Mapping[Place, int]]:
    """Return the run that a checkpoint goes on with, or begin one, and where the run began.

    Raises LEADLINE_ARCHIVE_CONFLICT for a checkpoint of another archive, or of a run that another
    one has followed.
    """
    began = any(path.startswith("offsets/") for path in checkpoint.paths("offsets"))
    known = checkpoint.size(RUN_FILE) is not None
    if began and not known:
        told = "the checkpoint is that of another query: give the archive one of its own"
        raise LeadlineSparkError("LEADLINE_ARCHIVE_CONFLICT", told)
    if began:
        run = int(json.loads(read(checkpoint, RUN_FILE))["run"])
        catalog.check_run(store, run)
        return run, catalog.start_of(store, run).ends
    run, start = catalog.begin_run(store)
    write(checkpoint, RUN_FILE, json.dumps({"run": run}).encode())
    return run, start.ends


def starting_offsets(metadata: Metadata, topics: Sequence[str], ends: Mapping[Place, int]) -> str:
    """Return where each partition begins without a checkpoint: where the archive ends, or earliest.

    Raises LEADLINE_TOPIC_UNKNOWN.
    """
    for name in topics:
        if name not in metadata.topics:
            raise LeadlineSparkError("LEADLINE_TOPIC_UNKNOWN", f"the cluster has no topic {name}")
    starts = {
        name: {
            str(partition): ends.get((name, partition), EARLIEST)
            for partition in metadata.topics[name].partitions
        }
        for name in topics
    }
    return json.dumps(starts)


if __name__ == "__main__":
    sys.exit(main())
