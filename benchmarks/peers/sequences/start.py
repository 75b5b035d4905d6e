"""The start of the cluster, while ZooKeeper already runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from peers.report.samples import Metric
from peers.sequences.on_cluster import Subject

START: Final = Metric("start, until every broker's metadata names all", "s")


async def measure(subject: Subject) -> Mapping[Metric, float]:
    """Return how long this cluster's start took."""
    return {START: subject.system.start_s}
