"""Consumer groups and their members."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Path
from starlette.responses import Response

from leadline_broker.api.v3.errors import NOT_FOUND, V3Error
from leadline_broker.api.v3.models.groups import (
    GroupState,
    KafkaConsumer,
    KafkaConsumerAssignment,
    KafkaConsumerAssignmentList,
    KafkaConsumerGroup,
    KafkaConsumerGroupList,
    KafkaConsumerList,
)
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
from leadline_client import wire
from leadline_common.api.group_models import GroupBody, Groups, GroupSummary, MemberBody
from leadline_common.http.service_queries import path_of

TAG: Final = "v3 consumer groups"
GROUPS: Final = "consumer-groups"
_STATES: Final[dict[wire.GroupState, GroupState]] = {
    wire.GroupState.EMPTY: "EMPTY",
    wire.GroupState.RECOVERING: "PREPARING_REBALANCE",
    wire.GroupState.JOINING: "PREPARING_REBALANCE",
    wire.GroupState.STOPPING: "PREPARING_REBALANCE",
    wire.GroupState.RECORDING: "COMPLETING_REBALANCE",
    wire.GroupState.STARTING: "COMPLETING_REBALANCE",
    wire.GroupState.STABLE: "STABLE",
    wire.GroupState.FAILED: "PREPARING_REBALANCE",
}
"""The state of Kafka that means the same; a failed rebalance is tried again."""
router = v3_router(TAG)

GroupId = Annotated[str, Path(description="The group's name", examples=["billing"])]
ConsumerId = Annotated[
    str, Path(description="The member's id", examples=["billing-6f1c0e5d2b7a4c11"])
]


@router.get(
    "/consumer-groups",
    response_model=KafkaConsumerGroupList,
    **documented("v3_list_groups", "List the consumer groups", READ),
)
async def list_groups(cluster: InCluster) -> Response:
    """Return the groups that the caller may describe, by name."""
    found = await cluster.context.coordinator.get(path_of("groups"), Groups)
    rows = sorted(found.groups, key=lambda row: row.group)
    items = (group_of(cluster, row, has_members=row.members > 0) for row in rows)
    return await list_response("KafkaConsumerGroupList", cluster.links.listed(GROUPS), items)


@router.get(
    "/consumer-groups/{consumer_group_id}",
    **documented("v3_read_group", "Get a consumer group", READ),
)
async def read_group(cluster: InCluster, consumer_group_id: GroupId) -> KafkaConsumerGroup:
    """Return a group with links to its members and its lag."""
    found = await _find_group(cluster, consumer_group_id)
    return group_of(cluster, found, has_members=bool(found.members))


@router.get(
    "/consumer-groups/{consumer_group_id}/consumers",
    response_model=KafkaConsumerList,
    **documented("v3_list_consumers", "List the members of a consumer group", READ),
)
async def list_consumers(cluster: InCluster, consumer_group_id: GroupId) -> Response:
    """Return the members of a group, by id."""
    members = await members_of(cluster, consumer_group_id)
    items = (consumer_of(cluster, consumer_group_id, members[one]) for one in sorted(members))
    own = cluster.links.listed(GROUPS, consumer_group_id, "consumers")
    return await list_response("KafkaConsumerList", own, items)


@router.get(
    "/consumer-groups/{consumer_group_id}/consumers/{consumer_id}",
    **documented("v3_read_consumer", "Get a member of a consumer group", READ),
)
async def read_consumer(
    cluster: InCluster, consumer_group_id: GroupId, consumer_id: ConsumerId
) -> KafkaConsumer:
    """Return a member of a group."""
    member = await _find_member(cluster, consumer_group_id, consumer_id)
    return consumer_of(cluster, consumer_group_id, member)


@router.get(
    "/consumer-groups/{consumer_group_id}/consumers/{consumer_id}/assignments",
    response_model=KafkaConsumerAssignmentList,
    **documented("v3_list_assignments", "List the partitions of a member", READ),
)
async def list_assignments(
    cluster: InCluster, consumer_group_id: GroupId, consumer_id: ConsumerId
) -> Response:
    """Return the partitions that a member owns, by topic and number."""
    member = await _find_member(cluster, consumer_group_id, consumer_id)
    owned = sorted((topic, number) for topic, numbers in member.owned for number in numbers)
    items = (_assignment(cluster, consumer_group_id, member, *one) for one in owned)
    own = cluster.links.listed(GROUPS, consumer_group_id, "consumers", consumer_id, "assignments")
    return await list_response("KafkaConsumerAssignmentList", own, items)


@router.get(
    "/consumer-groups/{consumer_group_id}/consumers/{consumer_id}/assignments"
    "/{topic_name}/partitions/{partition_id}",
    **documented("v3_read_assignment", "Get a partition of a member", READ),
)
async def read_assignment(
    cluster: InCluster,
    consumer_group_id: GroupId,
    consumer_id: ConsumerId,
    topic_name: TopicName,
    partition_id: PartitionId,
) -> KafkaConsumerAssignment:
    """Return a partition that a member owns."""
    member = await _find_member(cluster, consumer_group_id, consumer_id)
    if partition_id not in dict(member.owned).get(topic_name, ()):
        message = f"{consumer_id} does not own {topic_name}-{partition_id}"
        raise V3Error(NOT_FOUND, message)
    return _assignment(cluster, consumer_group_id, member, topic_name, partition_id)


async def members_of(cluster: ClusterView, group: str) -> dict[str, MemberBody]:
    """Return the members of a group, by id.

    Raises:
        UnknownGroup: there is none of this name.

    """
    return {one.id: one for one in (await _find_group(cluster, group)).members}


async def _find_group(cluster: ClusterView, group: str) -> GroupBody:
    return await cluster.context.coordinator.get(path_of("groups", group), GroupBody)


async def _find_member(cluster: ClusterView, group: str, consumer_id: str) -> MemberBody:
    member = (await members_of(cluster, group)).get(consumer_id)
    if member is None:
        raise V3Error(NOT_FOUND, f"group {group} has no member {consumer_id}")
    return member


def group_of(
    cluster: ClusterView, group: GroupBody | GroupSummary, *, has_members: bool
) -> KafkaConsumerGroup:
    """Return a group as the API shows it.

    It is simple if it has never had members, only offsets that consumers without a group commit.
    """
    links, name = cluster.links, group.group
    consumers = links.related(GROUPS, name, "consumers")
    return KafkaConsumerGroup(
        metadata=links.resource((GROUPS, name), f"consumer-group={name}"),
        cluster_id=links.cluster_id,
        consumer_group_id=name,
        is_simple=not has_members and group.generation <= 0,
        partition_assignor=group.assignor,
        state=_STATES.get(group.state, "UNKNOWN"),
        coordinator=links.related("brokers", cluster.context.state.broker_id),
        consumer=consumers,
        consumers=consumers,
        lag_summary=links.related(GROUPS, name, "lag-summary"),
    )


def consumer_of(cluster: ClusterView, group: str, member: MemberBody) -> KafkaConsumer:
    """Return a member as the API shows it."""
    path = (GROUPS, group, "consumers", member.id)
    parts = f"consumer-group={group}", f"consumer={member.id}"
    return KafkaConsumer(
        metadata=cluster.links.resource(path, *parts),
        cluster_id=cluster.cluster_id,
        consumer_group_id=group,
        consumer_id=member.id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        assignments=cluster.links.related(*path, "assignments"),
    )


def _assignment(
    cluster: ClusterView, group: str, member: MemberBody, topic: str, partition: int
) -> KafkaConsumerAssignment:
    links, place = cluster.links, (topic, "partitions", partition)
    path = (GROUPS, group, "consumers", member.id, "assignments", *place)
    parts = f"consumer={member.id}", f"assignment={partition}"
    return KafkaConsumerAssignment(
        metadata=links.resource(path, f"consumer-group={group}", *parts),
        cluster_id=links.cluster_id,
        consumer_group_id=group,
        consumer_id=member.id,
        topic_name=topic,
        partition_id=partition,
        partition=links.related("topics", *place),
        lag=links.related(GROUPS, group, "lags", *place),
    )
