"""The state of the cluster from which a balance is computed, and its ETag."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from leadline_client.wire import TopicPartition
from leadline_spark.cluster.cluster_client import ClusterClient, document
from leadline_spark.jobs.balancing.balance_state import Replicas


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The brokers and the placement of replicas, and the ETag of that metadata.

    `members` excludes brokers that are being drained or stopped. `assignment` excludes partitions
    that are being reassigned, and those with a replica on a broker that is down.
    """

    etag: str
    members: tuple[int, ...]
    racks: dict[int, str | None]
    urls: dict[int, str]
    assignment: dict[TopicPartition, Replicas]


def cluster_snapshot(cluster: ClusterClient) -> ClusterSnapshot:
    """Fetch the state. Raises LeadlineSparkError."""
    busy = document(cluster.ask("GET", "/v1/reassignments"))["reassignments"]
    brokers = cluster.ask("GET", "/v1/export/brokers").body.splitlines()
    answer = cluster.ask("GET", "/v1/metadata")
    return snapshot_of(
        document(answer), answer.headers["etag"], list(map(json.loads, brokers)), busy
    )


def snapshot_of(metadata: Any, etag: str, brokers: Any, busy: Any) -> ClusterSnapshot:
    """Combine the answers of the cluster."""
    live = {row["id"]: row for row in metadata["brokers"]}
    leaving = {row["id"] for row in brokers if row["draining"] or row["stopping"]}
    moving = {(row["topic"], row["partition"]) for row in busy}
    assignment = {
        TopicPartition(name, number): tuple(replicas)
        for name, topic in metadata["topics"].items()
        for number, _, _, _, replicas in topic["partitions"]
        if (name, number) not in moving and live.keys() >= set(replicas)
    }
    return ClusterSnapshot(
        etag,
        tuple(sorted(live.keys() - leaving)),
        {broker: row.get("rack") for broker, row in live.items()},
        {broker: row["url"] for broker, row in live.items()},
        assignment,
    )
