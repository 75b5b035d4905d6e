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

from leadline_client.wire import TopicPartition
from leadline_spark.archive import catalog
from leadline_spark.archive.sink import COLUMNS, FORMAT, ArchiveSink
from leadline_spark.archive.storage import ArchiveStore, absolute, open_store, read, sweep, write
from leadline_spark.cluster.cluster_client import ClusterClient, Metadata
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
    job_parser = command.job_parser("archive", __doc__)
    command.add_cluster(job_parser)
    job_parser.add_argument("--topics", required=True, metavar="NAME[,NAME]")
    job_parser.add_argument(
        "--to", required=True, metavar="DIR", help="directory or URI of the archive"
    )
    job_parser.add_argument(
        "--checkpoint", metavar="DIR", help="default: _checkpoint in the archive"
    )
    job_parser.add_argument(
        "--max-offsets-per-trigger",
        type=int,
        default=1_000_000,
        metavar="N",
        help="records in one batch at most, over all partitions (default: %(default)s)",
    )
    job_parser.add_argument(
        "--min-partitions", type=int, metavar="N", help="tasks in a batch, about"
    )
    job_parser.add_argument("--continuous", action="store_true", help="go on until stopped")
    job_parser.add_argument(
        "--interval",
        default="10 seconds",
        help="between the batches of --continuous (default: %(default)s)",
    )
    return job_parser


def main(argv: Sequence[str] | None = None) -> int:
    """Archive, and print what the archive holds then. The exit code is 1 where that failed."""
    arguments = parser().parse_args(argv)

    def job() -> int:
        start(command.session("leadline archive"), arguments).awaitTermination()
        entries = catalog.holdings(open_store(arguments.to))
        rows, size = sum(one.rows for one in entries), sum(one.bytes for one in entries)
        command.report({"files": len(entries), "rows": rows, "bytes": size})
        return command.DONE

    return command.run(job)


def start(
    spark: SparkSession, arguments: argparse.Namespace, sink: type[ArchiveSink] = ArchiveSink
) -> StreamingQuery:
    """Start the query. Raises LeadlineSparkError for an archive that it may not write to."""
    location = absolute(arguments.to)
    checkpoint = absolute(arguments.checkpoint or f"{location.rstrip('/')}/_checkpoint")
    topics = [name.strip() for name in arguments.topics.split(",") if name.strip()]
    cluster = command.options_of(arguments)
    metadata = ClusterClient(command.connection_of(arguments)).metadata(topics)
    store = open_store(location)
    sweep(store)
    run, ends = resume(store, open_store(checkpoint))
    options = cluster | {
        "subscribe": ",".join(topics),
        "columns": ",".join(COLUMNS),
        "startingOffsets": starting_offsets(metadata, topics, ends),
        "maxOffsetsPerTrigger": str(arguments.max_offsets_per_trigger),
    }
    if arguments.min_partitions:
        options["minPartitions"] = str(arguments.min_partitions)
    register(spark)
    spark.dataSource.register(sink)
    # Makes the session the active one of this thread: Spark looks for a stream's sink in no other.
    spark.createDataFrame([(0,)], "n int")
    records = spark.readStream.format("leadline").options(**options).load()
    destination = {"path": location, "run": str(run), "checkpointLocation": checkpoint}
    writer = records.writeStream.format(FORMAT).options(**cluster, **destination)
    if arguments.continuous:
        return writer.trigger(processingTime=arguments.interval).start()
    return writer.trigger(availableNow=True).start()


def resume(
    store: ArchiveStore, checkpoint: ArchiveStore
) -> tuple[int, Mapping[TopicPartition, int]]:
    """Return the run that a checkpoint goes on with, or begin one, and where the run began.

    Raises LEADLINE_ARCHIVE_CONFLICT for a checkpoint of another archive, or of a run that another
    one has followed.
    """
    began = any(path.startswith("offsets/") for path in checkpoint.paths("offsets"))
    known = checkpoint.size(RUN_FILE) is not None
    if began and not known:
        message = "the checkpoint is that of another query: give the archive one of its own"
        raise LeadlineSparkError("LEADLINE_ARCHIVE_CONFLICT", message)
    if began:
        run = int(json.loads(read(checkpoint, RUN_FILE))["run"])
        catalog.check_run(store, run)
        return run, catalog.start_of(store, run).ends
    run, start = catalog.begin_run(store)
    write(checkpoint, RUN_FILE, json.dumps({"run": run}).encode())
    return run, start.ends


def starting_offsets(
    metadata: Metadata, topics: Sequence[str], ends: Mapping[TopicPartition, int]
) -> str:
    """Return where each partition begins without a checkpoint: where the archive ends, or earliest.

    Raises LEADLINE_TOPIC_UNKNOWN.
    """
    for name in topics:
        if name not in metadata.topics:
            raise LeadlineSparkError("LEADLINE_TOPIC_UNKNOWN", f"the cluster has no topic {name}")
    starts = {
        name: {
            str(partition): ends.get(TopicPartition(name, partition), EARLIEST)
            for partition in metadata.topics[name].partitions
        }
        for name in topics
    }
    return json.dumps(starts)


if __name__ == "__main__":
    sys.exit(main())
