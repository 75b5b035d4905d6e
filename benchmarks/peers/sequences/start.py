"""The start of the cluster, while ZooKeeper already runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final

from peers.report.samples import Metric
from peers.sequences.on_cluster import Subject

START: Final = Metric("start, until every broker's metadata names all", "s")


async def measure(subject: Subject) -> AsyncIterator[Mapping[Metric, float]]:
    """Yield how long this cluster's start took."""
    yield {START: subject.system.start_s}
