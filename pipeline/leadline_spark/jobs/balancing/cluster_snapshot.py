"""What a balance is made from and bound to: one state of the cluster, and its ETag."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from leadline_spark.cluster.cluster import Cluster
from leadline_spark.jobs.balancing.board import Place, Replicas

METADATA = "/v1/metadata"


@dataclass(frozen=True, slots=True)
class View:
    """Who may take part, where replicas are, and the ETag of the metadata that says so.

    `members` leaves out brokers that are drained or about to stop; `assignment` leaves out
    partitions that are being reassigned, or that have a replica on a broker that is down.
    """

    etag: str
    members: tuple[int, ...]
    racks: dict[int, str | None]
    urls: dict[int, str]
    assignment: dict[Place, Replicas]


def look(cluster: Cluster) -> View:
    """Ask the cluster. Raises LeadlineSparkError where nobody answers."""
    busy = cluster.ask("GET", "/v1/reassignments").json()["reassignments"]
    brokers = cluster.ask("GET", "/v1/export/brokers").body.splitlines()
    answer = cluster.ask("GET", METADATA)
    return view_of(answer.json(), answer.headers["etag"], list(map(json.loads, brokers)), busy)


def view_of(metadata: Any, etag: str, brokers: Any, busy: Any) -> View:
    """Put answers together."""
    live = {row["id"]: row for row in metadata["brokers"]}
    leaving = {row["id"] for row in brokers if row["draining"] or row["stopping"]}
    moving = {(row["topic"], row["partition"]) for row in busy}
    assignment = {
        (name, number): tuple(replicas)
        for name, topic in metadata["topics"].items()
        for number, _, _, _, replicas in topic["partitions"]
        if (name, number) not in moving and live.keys() >= set(replicas)
    }
    return View(
        etag,
        tuple(sorted(live.keys() - leaving)),
        {broker: row.get("rack") for broker, row in live.items()},
        {broker: row["url"] for broker, row in live.items()},
        assignment,
    )
