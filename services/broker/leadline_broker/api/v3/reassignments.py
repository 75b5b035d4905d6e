"""Reassignments of partitions that are in progress."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from leadline_broker.api.v3.errors import NOT_FOUND, V3Error
from leadline_broker.api.v3.links import Links
from leadline_broker.api.v3.lookup import find_row
from leadline_broker.api.v3.models.topics import KafkaReassignment, KafkaReassignmentList
from leadline_broker.api.v3.routes import (
    READ,
    ClusterView,
    InCluster,
    PartitionId,
    TopicName,
    documented,
    list_response,
    v3_router,
)
from leadline_common.api.reassignments import Reassignment, Reassignments
from leadline_common.http.service_queries import path_of

TAG: Final = "v3 reassignments"
_LIST: Final = "KafkaReassignmentList"
router = v3_router(TAG)


@router.get(
    "/topics/-/partitions/-/reassignment",
    response_model=KafkaReassignmentList,
    **documented("v3_list_all_reassignments", "List the reassignments", READ),
)
async def list_all_reassignments(cluster: InCluster) -> Response:
    """Return the reassignments in progress, by topic and partition."""
    rows = await _running(cluster)
    own = cluster.links.listed("topics", "-", "partitions", "-", "reassignment")
    return await list_response(_LIST, own, (shown(cluster.links, row) for row in rows))


@router.get(
    "/topics/{topic_name}/partitions/-/reassignment",
    response_model=KafkaReassignmentList,
    **documented("v3_list_topic_reassignments", "List the reassignments of a topic", READ),
)
async def list_topic_reassignments(cluster: InCluster, topic_name: TopicName) -> Response:
    """Return the reassignments of a topic in progress; none if there is no such topic."""
    rows = await _running(cluster, topic_name)
    own = cluster.links.listed("topics", topic_name, "partitions", "-", "reassignment")
    return await list_response(_LIST, own, (shown(cluster.links, row) for row in rows))


@router.get(
    "/topics/{topic_name}/partitions/{partition_id}/reassignment",
    **documented("v3_read_reassignment", "Get the reassignment of a partition", READ),
)
async def read_reassignment(
    cluster: InCluster, topic_name: TopicName, partition_id: PartitionId
) -> KafkaReassignment:
    """Return the reassignment of a partition, 404 if none is in progress."""
    find_row(cluster, topic_name, partition_id)
    for row in await _running(cluster, topic_name):
        if row.partition == partition_id:
            return shown(cluster.links, row)
    raise V3Error(NOT_FOUND, f"{topic_name}-{partition_id} is not being reassigned")


async def _running(cluster: ClusterView, topic: str | None = None) -> list[Reassignment]:
    query = None if topic is None else {"topic": topic}
    answer = await cluster.context.controller.get(path_of("reassignments"), Reassignments, query)
    return sorted(answer.reassignments, key=lambda row: (row.topic, row.partition))


def shown(links: Links, row: Reassignment) -> KafkaReassignment:
    """Return a reassignment as the API shows it: all that is still to be added and removed."""
    path = ("topics", row.topic, "partitions", row.partition)
    parts = f"topic={row.topic}", f"partition={row.partition}", "reassignment"
    return KafkaReassignment(
        metadata=links.resource((*path, "reassignment"), *parts),
        cluster_id=links.cluster_id,
        topic_name=row.topic,
        partition_id=row.partition,
        adding_replicas=[one for one in row.target if one not in row.current],
        removing_replicas=[one for one in row.current if one not in row.target],
        replicas=links.related(*path, "replicas"),
    )
