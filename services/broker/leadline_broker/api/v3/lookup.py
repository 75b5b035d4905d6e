"""What the path of a request names, or the error if it does not exist."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final

from leadline_broker.api.v3.errors import NO_SUCH_TOPIC, NOT_FOUND, V3Error
from leadline_broker.api.v3.routes import ClusterView
from leadline_broker.runtime.cluster.metadata import ClusterMetadataCache
from leadline_client.wire import BrokerInfo
from leadline_common.rpc import PartitionRow

SETTLING_MS: Final = 5_000
"""How long a write waits until this broker serves what it has changed."""


def find_broker(cluster: ClusterView, broker_id: int) -> BrokerInfo:
    """Return a live broker.

    Raises:
        V3Error: there is none with this id.

    """
    broker = cluster.metadata.brokers.get(broker_id)
    if broker is None:
        raise V3Error(NOT_FOUND, f"there is no live broker {broker_id}")
    return broker


def find_rows(cluster: ClusterView, topic: str) -> list[PartitionRow]:
    """Return the partitions of a topic, by number.

    Raises:
        V3Error: there is no such topic.

    """
    metadata = cluster.metadata
    found = (metadata.partition(topic, one) for one in metadata.partition_numbers(topic))
    rows = [row for row in found if row is not None]
    if not rows:
        raise V3Error(NO_SUCH_TOPIC, f"there is no topic {topic}")
    return rows


def find_row(cluster: ClusterView, topic: str, partition: int) -> PartitionRow:
    """Return a partition.

    Raises:
        V3Error: there is no such topic, or no such partition.

    """
    row = cluster.metadata.partition(topic, partition)
    if row is None:
        find_rows(cluster, topic)
        raise V3Error(NOT_FOUND, f"topic {topic} has no partition {partition}")
    return row


async def settle(metadata: ClusterMetadataCache, condition: Callable[[], bool]) -> bool:
    """Wait until the metadata meets a condition; return whether it does within `SETTLING_MS`.

    A broker that is about to stop waits for nothing.
    """
    deadline = monotonic() + SETTLING_MS / 1000
    while not condition():
        left_ms = max(0, int(1000 * (deadline - monotonic())))
        if not await metadata.wait_newer(metadata.version, left_ms):
            return condition()
    return True
