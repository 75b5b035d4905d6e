"""Replay an archive into a topic: keys, values, headers, timestamps, partitions and order.

  leadline spark replay /archive --topic orders --into orders-restored
  spark-submit … leadline_spark/jobs/replay.py /archive --bootstrap URL --topic orders …

The topic is new, or has the records of an earlier attempt at the same replay, which then continues:
every record is there once. A topic that does not exist is created with the archived number of
partitions. Offsets begin at 0. Nobody else may write to the topic meanwhile.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from typing import Any

from leadline_client.wire import TopicInfo, TopicPartition
from leadline_spark.archive import catalog
from leadline_spark.archive import manifest as manifests
from leadline_spark.archive.manifest import ManifestEntry
from leadline_spark.archive.partition_replay import PartitionReplay, replay_partition
from leadline_spark.archive.storage import absolute, open_store
from leadline_spark.cluster.cluster_client import ClusterClient
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.jobs import command


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    job_parser = command.job_parser("replay", __doc__)
    command.add_archive(job_parser)
    command.add_cluster(job_parser)
    job_parser.add_argument("--topic", required=True, metavar="NAME", help="as it was archived")
    job_parser.add_argument("--into", required=True, metavar="NAME", help="the topic to fill")
    job_parser.add_argument(
        "--replication-factor",
        type=int,
        metavar="N",
        help="of a topic that is made; default: the cluster's",
    )
    return job_parser


def main(argv: Sequence[str] | None = None) -> int:
    """Replay, and print the number of records. The exit code is 1 after an error."""
    arguments = parser().parse_args(argv)

    def job() -> int:
        entries = [
            entry
            for entry in catalog.holdings(open_store(arguments.archive))
            if entry.name.topic == arguments.topic
        ]
        if not entries:
            message = f"{arguments.archive} holds nothing of {arguments.topic}"
            raise LeadlineSparkError("LEADLINE_TOPIC_UNKNOWN", message)
        replays = plan(arguments, entries)
        spark = command.session("leadline replay")
        tasks = spark.sparkContext.parallelize(replays, len(replays))
        sent = sum(tasks.map(replay_partition).collect())
        rows = sum(entry.rows for entry in entries)
        command.report({"rows": rows, "published": sent, "partitions": len(replays)})
        return command.DONE

    return command.run(job)


def plan(arguments: argparse.Namespace, entries: Sequence[ManifestEntry]) -> list[PartitionReplay]:
    """Return the work for each partition; create the topic if it does not exist.

    Raises LeadlineSparkError: LEADLINE_ARCHIVE_DAMAGED if offsets are missing or doubled,
    LEADLINE_REPLAY_CONFLICT if the topic has too few partitions.
    """
    files_of = manifests.by_partition(entries)
    for topic_partition, ranges in manifests.spans(entries).items():
        offsets = sum(file.name.end - file.name.first for file in files_of[topic_partition])
        if len(ranges) > 1 or offsets != ranges[0][1] - ranges[0][0]:
            message = f"{topic_partition} has gaps or overlaps: see `leadline spark verify`"
            raise manifests.damaged(message)
    needed = 1 + max(partition for _, partition in files_of)
    connection = command.connection_of(arguments)
    target = _target(
        ClusterClient(connection), arguments.into, needed, arguments.replication_factor
    )
    # The application identifies this replay: not one of another archive, or into a recreated topic.
    sums = hashlib.sha256("".join(entry.path + entry.sha256 for entry in entries).encode())
    app = f"leadline-replay-{sums.hexdigest()[:16]}-{target.topic_id}"
    return [
        PartitionReplay(
            absolute(arguments.archive),
            tuple(files),
            TopicPartition(arguments.into, partition),
            app,
            connection,
        )
        for (_, partition), files in files_of.items()
    ]


def _target(
    cluster: ClusterClient, name: str, partitions: int, replication_factor: int | None
) -> TopicInfo:
    found = cluster.metadata([name]).topics.get(name)
    if found is None:
        body: dict[str, Any] = {"name": name, "partitions": partitions}
        if replication_factor is not None:
            body["replication_factor"] = replication_factor
        cluster.ask_broker("POST", "/v1/topics", body, wait_s=30.0)
        found = cluster.metadata([name]).topics[name]
    if len(found.partitions) < partitions:
        message = f"{name} has {len(found.partitions)} partitions, the archive has {partitions}"
        raise LeadlineSparkError("LEADLINE_REPLAY_CONFLICT", message)
    return found


if __name__ == "__main__":
    sys.exit(main())
