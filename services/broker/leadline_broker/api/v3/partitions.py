"""Partitions, their offsets and their replicas."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query
from starlette.responses import Response

from leadline_broker.api.v3.errors import MALFORMED, NOT_FOUND, V3Error
from leadline_broker.api.v3.links import Links
from leadline_broker.api.v3.lookup import find_row, find_rows
from leadline_broker.api.v3.models.topics import (
    KafkaPartition,
    KafkaPartitionList,
    KafkaPartitionOffsets,
    KafkaReplica,
    KafkaReplicaList,
)
from leadline_broker.api.v3.routes import (
    READ,
    BrokerId,
    InCluster,
    PartitionId,
    TopicName,
    documented,
    list_response,
    v3_router,
)
from leadline_client.errors import LeaderNotAvailable, error_from_body
from leadline_common.bulk_offsets import BulkQuestion, PartitionEnds, PartitionQuestion
from leadline_common.rpc import NO_ERROR, PartitionRow

TAG: Final = "v3 partitions"
NO_LEADER: Final = -1
_RANGE: Final = "earliest_and_latest"
router = v3_router(TAG)

OffsetType = Annotated[str, Query(description=f"Which offsets: `{_RANGE}` is the only choice")]


@router.get(
    "/topics/{topic_name}/partitions",
    response_model=KafkaPartitionList,
    **documented("v3_list_partitions", "List the partitions of a topic", READ),
)
async def list_partitions(cluster: InCluster, topic_name: TopicName) -> Response:
    """Return the partitions of a topic, by number."""
    rows = find_rows(cluster, topic_name)
    items = (partition_of(cluster.links, topic_name, row) for row in rows)
    own = cluster.links.listed("topics", topic_name, "partitions")
    return await list_response("KafkaPartitionList", own, items)


@router.get(
    "/topics/{topic_name}/partitions/{partition_id}",
    **documented("v3_read_partition", "Get a partition", READ),
)
async def read_partition(
    cluster: InCluster, topic_name: TopicName, partition_id: PartitionId
) -> KafkaPartition:
    """Return a partition with links to its leader and its replicas."""
    return partition_of(cluster.links, topic_name, find_row(cluster, topic_name, partition_id))


@router.get(
    "/topics/{topic_name}/partitions/{partition_id}/offset",
    **documented("v3_read_partition_offsets", "Get the offsets of a partition", READ),
)
async def read_partition_offsets(
    cluster: InCluster,
    topic_name: TopicName,
    partition_id: PartitionId,
    offset_type: OffsetType = _RANGE,
) -> KafkaPartitionOffsets:
    """Return the offset of the first record, and the one after the last committed record.

    The broker asks the leader of the partition.
    """
    if offset_type != _RANGE:
        raise V3Error(MALFORMED, f"offset_type: must be {_RANGE}")
    find_row(cluster, topic_name, partition_id)
    ends = await _ends_of(cluster, topic_name, partition_id)
    path = ("topics", topic_name, "partitions", partition_id, "offset")
    parts = f"topic={topic_name}", f"partition={partition_id}"
    return KafkaPartitionOffsets(
        metadata=cluster.links.resource(path, *parts),
        cluster_id=cluster.cluster_id,
        topic_name=topic_name,
        partition_id=partition_id,
        earliest_offset=ends.log_start_offset,
        latest_offset=ends.high_watermark,
    )


@router.get(
    "/topics/{topic_name}/partitions/{partition_id}/replicas",
    response_model=KafkaReplicaList,
    **documented("v3_list_replicas", "List the replicas of a partition", READ),
)
async def list_replicas(
    cluster: InCluster, topic_name: TopicName, partition_id: PartitionId
) -> Response:
    """Return the replicas of a partition, the preferred leader first."""
    row = find_row(cluster, topic_name, partition_id)
    items = (replica_of(cluster.links, topic_name, row, broker) for broker in row.replicas)
    own = cluster.links.listed("topics", topic_name, "partitions", partition_id, "replicas")
    return await list_response("KafkaReplicaList", own, items)


@router.get(
    "/topics/{topic_name}/partitions/{partition_id}/replicas/{broker_id}",
    **documented("v3_read_replica", "Get a replica of a partition", READ),
)
async def read_replica(
    cluster: InCluster, topic_name: TopicName, partition_id: PartitionId, broker_id: BrokerId
) -> KafkaReplica:
    """Return a replica of a partition on a broker."""
    row = find_row(cluster, topic_name, partition_id)
    if broker_id not in row.replicas:
        message = f"{topic_name}-{partition_id} has no replica on broker {broker_id}"
        raise V3Error(NOT_FOUND, message)
    return replica_of(cluster.links, topic_name, row, broker_id)


async def _ends_of(cluster: InCluster, topic: str, partition: int) -> PartitionEnds:
    question = BulkQuestion(partitions=[PartitionQuestion(topic, partition)])
    [found] = (await cluster.context.engine().offset_finder.answer(question)).partitions
    if found.error_code != NO_ERROR:
        # One code for every reason, such as that the leader is changing.
        body = {"error_code": found.error_code, "message": found.message}
        raise error_from_body(500, body)
    if found.offsets is None:
        raise LeaderNotAvailable(f"the offsets of {topic}-{partition} are not known now")
    return found.offsets


def partition_of(links: Links, topic: str, row: PartitionRow) -> KafkaPartition:
    """Return a partition as the API shows it."""
    path = ("topics", topic, "partitions", row.partition)
    has_leader = row.leader != NO_LEADER
    return KafkaPartition(
        metadata=links.resource(path, f"topic={topic}", f"partition={row.partition}"),
        cluster_id=links.cluster_id,
        topic_name=topic,
        partition_id=row.partition,
        leader=links.related(*path, "replicas", row.leader) if has_leader else None,
        replicas=links.related(*path, "replicas"),
        reassignment=links.related(*path, "reassignment"),
    )


def replica_of(links: Links, topic: str, row: PartitionRow, broker_id: int) -> KafkaReplica:
    """Return a replica as the API shows it."""
    path = ("topics", topic, "partitions", row.partition, "replicas", broker_id)
    parts = f"topic={topic}", f"partition={row.partition}", f"replica={broker_id}"
    return KafkaReplica(
        metadata=links.resource(path, *parts),
        cluster_id=links.cluster_id,
        topic_name=topic,
        partition_id=row.partition,
        broker_id=broker_id,
        is_leader=row.leader == broker_id,
        is_in_sync=broker_id in row.isr,
        broker=links.related("brokers", broker_id),
    )
