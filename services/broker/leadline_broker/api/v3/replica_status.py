"""How far the replicas of partitions are, as their brokers and leaders report it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from starlette.responses import Response

from leadline_broker.api.shown_replicas import REPORTS, shown_replicas
from leadline_broker.api.v3.lookup import find_row, find_rows
from leadline_broker.api.v3.models.topics import KafkaReplicaStatus, KafkaReplicaStatusList
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
from leadline_broker.runtime.replication.partition import FollowerInfo, ReplicaInfo
from leadline_client.errors import LeadlineError
from leadline_common.access.caller import current_caller
from leadline_common.http.forward import OutgoingRequest
from leadline_common.http.service_queries import path_of
from leadline_common.rpc import PartitionRow
from leadline_common.slices import slices

TAG: Final = "v3 replica status"
_LIST: Final = "KafkaReplicaStatusList"
_TIMEOUT_S: Final = 5.0
_UNKNOWN: Final = -1
router = v3_router(TAG)

Rows = Sequence[tuple[str, PartitionRow]]
Reports = Mapping[tuple[str, int, int], ReplicaInfo]
"""What brokers say of their replicas, by topic, partition and broker."""


@router.get(
    "/topics/-/partitions/-/replica-status",
    response_model=KafkaReplicaStatusList,
    **documented("v3_list_all_replica_status", "List the status of all replicas", READ),
)
async def list_all_replica_status(cluster: InCluster) -> Response:
    """Return the status of all replicas, by topic, partition and broker.

    The broker asks all brokers; what one that does not answer would know is -1.
    """
    metadata = cluster.metadata
    names = current_caller().access.visible("topic", sorted(metadata.topic_names()))
    numbered = ((topic, number) for topic in names for number in metadata.partition_numbers(topic))
    found: list[tuple[str, PartitionRow]] = []
    async for some in slices(numbered):
        rows = ((topic, metadata.partition(topic, number)) for topic, number in some)
        found += [(topic, row) for topic, row in rows if row is not None]
    return await _listed(cluster, found, "topics", "-", "partitions", "-", "replica-status")


@router.get(
    "/topics/{topic_name}/partitions/-/replica-status",
    response_model=KafkaReplicaStatusList,
    **documented("v3_list_topic_replica_status", "List the status of a topic's replicas", READ),
)
async def list_topic_replica_status(cluster: InCluster, topic_name: TopicName) -> Response:
    """Return the status of a topic's replicas, by partition and broker."""
    found = [(topic_name, row) for row in find_rows(cluster, topic_name)]
    path = ("topics", topic_name, "partitions", "-", "replica-status")
    return await _listed(cluster, found, *path)


@router.get(
    "/topics/{topic_name}/partitions/{partition_id}/replica-status",
    response_model=KafkaReplicaStatusList,
    **documented(
        "v3_list_partition_replica_status", "List the status of a partition's replicas", READ
    ),
)
async def list_partition_replica_status(
    cluster: InCluster, topic_name: TopicName, partition_id: PartitionId
) -> Response:
    """Return the status of a partition's replicas, by broker."""
    row = find_row(cluster, topic_name, partition_id)
    path = ("topics", topic_name, "partitions", partition_id, "replica-status")
    return await _listed(cluster, [(topic_name, row)], *path)


async def _listed(cluster: ClusterView, rows: Rows, *path: str | int) -> Response:
    reports = await _reports(cluster, rows)
    items = (
        status_of(cluster, topic, row, broker_id, reports)
        for topic, row in rows
        for broker_id in sorted(row.replicas)
    )
    return await list_response(_LIST, cluster.links.listed(*path), items)


async def _reports(cluster: ClusterView, rows: Rows) -> Reports:
    """Return what the live brokers with these replicas say of them."""
    topics: set[str] = set()
    brokers: set[int] = set()
    async for some in slices(rows):
        topics.update(topic for topic, _ in some)
        brokers.update(broker for _, row in some for broker in row.replicas)
    asked = sorted(brokers & cluster.metadata.brokers.keys())
    topic = next(iter(topics)) if len(topics) == 1 else None
    answers = await asyncio.gather(*(_ask(cluster, broker, topic) for broker in asked))
    reports: dict[tuple[str, int, int], ReplicaInfo] = {}
    for broker, replicas in zip(asked, answers, strict=True):
        async for part in slices(replicas):
            reports.update(((one.topic, one.partition, broker), one) for one in part)
    return reports


async def _ask(cluster: ClusterView, broker_id: int, topic: str | None) -> list[ReplicaInfo]:
    context = cluster.context
    if broker_id == context.state.broker_id:
        return await shown_replicas(context.engine(), topic)
    address = context.state.address_of(broker_id)
    if address is None:
        return []
    target = path_of("replicas") + ("" if topic is None else f"?topic={topic}")
    request = OutgoingRequest("GET", target)
    try:
        content = await context.brokers.call(request, address, timeout_s=_TIMEOUT_S)
    except LeadlineError:
        return []
    report = await REPORTS.decode(content)
    return [] if report is None else report.replicas


def status_of(
    cluster: ClusterView, topic: str, row: PartitionRow, broker_id: int, reports: Reports
) -> KafkaReplicaStatus:
    """Return the status of a replica from its own report, and that of its leader."""
    own = reports.get((topic, row.partition, broker_id))
    leader = reports.get((topic, row.partition, row.leader))
    follower = next(_followers(leader, broker_id), None)
    is_leader = broker_id == row.leader
    end = own.log_end_offset if own else follower.log_end_offset if follower else _UNKNOWN
    caught_up = own is not None and leader is not None and end >= leader.log_end_offset
    leading_ms = cluster.context.now_ms() if is_leader and own else _UNKNOWN
    path = ("topics", topic, "partitions", row.partition, "replica-status", broker_id)
    parts = f"topic={topic}", f"partition={row.partition}", f"replica={broker_id}"
    return KafkaReplicaStatus(
        metadata=cluster.links.resource(path, *parts),
        cluster_id=cluster.cluster_id,
        topic_name=topic,
        broker_id=broker_id,
        partition_id=row.partition,
        is_leader=is_leader,
        is_isr_eligible=broker_id in cluster.metadata.brokers,
        is_in_isr=broker_id in row.isr,
        is_caught_up=caught_up,
        log_start_offset=own.log_start_offset if own else _UNKNOWN,
        log_end_offset=end,
        last_caught_up_time_ms=follower.last_caught_up_ms if follower else leading_ms,
        last_fetch_time_ms=follower.last_fetch_ms if follower else leading_ms,
    )


def _followers(leader: ReplicaInfo | None, broker_id: int) -> Iterator[FollowerInfo]:
    followers = leader.followers if leader is not None else None
    return (one for one in followers or [] if one.broker == broker_id)
