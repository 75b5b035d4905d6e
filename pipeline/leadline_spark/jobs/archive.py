"""Archive topics as Parquet, exactly once.

  leadline spark archive --topics orders,payments --to /archive
  spark-submit … leadline_spark/jobs/archive.py --bootstrap URL --topics orders --to /archive

Ends when everything is archived that existed when it began, as is right for cron; with --continuous
it runs until it is stopped. After any crash the next run continues, and nothing is lost or doubled.
Offsets are in Spark's checkpoint, files are named after offsets, and one manifest adds all files of
a batch. Without the checkpoint, too, the next run continues at the end of the archive.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from leadline_client.wire import Metadata, TopicPartition
from leadline_spark.archive import catalog
from leadline_spark.archive.naming import ManifestName
from leadline_spark.archive.sink import COLUMNS, FORMAT, ArchiveSink
from leadline_spark.archive.storage import ArchiveStore, absolute, open_store, read, sweep, write
from leadline_spark.cluster.cluster_client import ClusterClient
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.jobs import command
from leadline_spark.read.offsets import EARLIEST
from leadline_spark.registration import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RUN_FILE = "leadline-archive.json"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    job_parser = command.job_parser("archive", __doc__)
    command.add_cluster(job_parser)
    add = job_parser.add_argument
    add("--topics", required=True, metavar="NAME[,NAME]")
    add("--to", required=True, metavar="DIR", help="directory or URI of the archive")
    add("--checkpoint", metavar="DIR", help="default: _checkpoint in the archive")
    add(
        "--max-offsets-per-trigger",
        type=int,
        default=1_000_000,
        metavar="N",
        help="records in one batch at most, over all partitions (default: %(default)s)",
    )
    add("--min-partitions", type=int, metavar="N", help="tasks in a batch, about")
    add("--continuous", action="store_true", help="go on until stopped")
    add(
        "--interval",
        default="10 seconds",
        help="between the batches of --continuous (default: %(default)s)",
    )
    return job_parser


def main(argv: Sequence[str] | None = None) -> int:
    """Archive, and print the size of the archive. The exit code is 1 after an error."""
    arguments = parser().parse_args(argv)

    def job() -> int:
        start(command.session("leadline archive"), arguments).awaitTermination()
        entries = catalog.holdings(open_store(arguments.to))
        rows, size = sum(entry.rows for entry in entries), sum(entry.bytes for entry in entries)
        command.report({"files": len(entries), "rows": rows, "bytes": size})
        return command.DONE

    return command.run(job)


def start(
    spark: SparkSession, arguments: argparse.Namespace, sink: type[ArchiveSink] = ArchiveSink
) -> StreamingQuery:
    """Start the query. Raises LeadlineSparkError if it may not write to the archive."""
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
    # Spark looks up a stream's sink only in the thread's active session, which this sets.
    spark.createDataFrame([(0,)], "n int")
    records = spark.readStream.format("leadline").options(**options).load()
    ids = json.dumps({name: metadata.topics[name].topic_id for name in topics})
    destination = {"path": location, "run": str(run), "ids": ids, "checkpointLocation": checkpoint}
    writer = records.writeStream.format(FORMAT).options(**cluster, **destination)
    if arguments.continuous:
        return writer.trigger(processingTime=arguments.interval).start()
    return writer.trigger(availableNow=True).start()


def resume(
    store: ArchiveStore, checkpoint: ArchiveStore
) -> tuple[int, Mapping[TopicPartition, int]]:
    """Return the run of a checkpoint, or begin a new run; and the ends at the start of the run.

    Raises LEADLINE_ARCHIVE_CONFLICT for a checkpoint of another archive, or of an earlier run.
    """
    began = any(path.startswith("offsets/") for path in checkpoint.paths("offsets"))
    known = checkpoint.size(RUN_FILE) is not None
    if began and not known:
        message = "the checkpoint is that of another query: give the archive one of its own"
        raise LeadlineSparkError("LEADLINE_ARCHIVE_CONFLICT", message)
    if began:
        run = int(json.loads(read(checkpoint, RUN_FILE))["run"])
        catalog.check_run(store, run)
        return run, catalog.load_one(store, ManifestName(run, catalog.START)).ends
    run, start = catalog.begin_run(store)
    write(checkpoint, RUN_FILE, json.dumps({"run": run}).encode())
    return run, start.ends


def starting_offsets(
    metadata: Metadata, topics: Sequence[str], ends: Mapping[TopicPartition, int]
) -> str:
    """Return where each partition starts without a checkpoint: at the archive's end, or earliest.

    Raises LEADLINE_TOPIC_UNKNOWN.
    """
    for name in topics:
        if name not in metadata.topics:
            raise LeadlineSparkError("LEADLINE_TOPIC_UNKNOWN", f"the cluster has no topic {name}")
    starts = {
        name: {
            str(row.partition): ends.get(TopicPartition(name, row.partition), EARLIEST)
            for row in metadata.topics[name].partitions
        }
        for name in topics
    }
    return json.dumps(starts)


if __name__ == "__main__":
    sys.exit(main())
