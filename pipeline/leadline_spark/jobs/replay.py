"""Put an archive back into a topic: keys, values, headers, timestamps, partitions and order.

  leadline spark replay /archive --topic orders --into orders-restored
  spark-submit … leadline_spark/jobs/replay.py /archive --bootstrap URL --topic orders …

The topic is new, or has what an earlier attempt at the same has put there: then this goes on, and
every record is there once. It is made with the archived number of partitions if it does not exist.
Offsets begin at 0; nobody else may write to it meanwhile.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from typing import Any

from leadline_client.wire import TopicPartition
from leadline_spark.archive import catalog
from leadline_spark.archive import manifest as manifests
from leadline_spark.archive.manifest import ManifestEntry
from leadline_spark.archive.partition_replay import PartitionReplay, fill
from leadline_spark.archive.storage import absolute, open_store
from leadline_spark.cluster.cluster_client import ClusterClient, TopicMetadata
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.jobs import command


def parser() -> argparse.ArgumentParser:
    """Return what understands the command line."""
    job_parser = command.job_parser("replay", __doc__)
    job_parser.add_argument("archive", metavar="DIR", help="directory or URI of the archive")
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
    """Replay, and print how much that was. The exit code is 1 where that failed."""
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
        fillings = plan(arguments, entries)
        spark = command.session("leadline replay")
        tasks = spark.sparkContext.parallelize(fillings, len(fillings))
        sent = sum(tasks.map(fill).collect())
        rows = sum(entry.rows for entry in entries)
        command.report({"rows": rows, "published": sent, "partitions": len(fillings)})
        return command.DONE

    return command.run(job)


def plan(arguments: argparse.Namespace, entries: Sequence[ManifestEntry]) -> list[PartitionReplay]:
    """Return what is to be done for each partition, after making the topic where there is none.

    Raises LeadlineSparkError: LEADLINE_ARCHIVE_DAMAGED where offsets are missing or doubled,
    LEADLINE_REPLAY_CONFLICT for a topic with too few partitions.
    """
    topic_partitions = manifests.by_partition(entries)
    for topic_partition, ranges in manifests.spans(entries).items():
        whole = sum(
            entry.name.end - entry.name.first for entry in topic_partitions[topic_partition]
        )
        if len(ranges) > 1 or whole != ranges[0][1] - ranges[0][0]:
            message = f"{topic_partition[0]}-{topic_partition[1]} has gaps or overlaps: see `leadline spark verify`"
            raise manifests.damaged(message)
    needed = 1 + max(partition for _, partition in topic_partitions)
    connection = command.connection_of(arguments)
    target = _target(
        ClusterClient(connection), arguments.into, needed, arguments.replication_factor
    )
    # What is replayed into what: another archive, or a topic made anew, is another undertaking.
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
        for (_, partition), files in topic_partitions.items()
    ]


def _target(
    cluster: ClusterClient, name: str, partitions: int, replication_factor: int | None
) -> TopicMetadata:
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
