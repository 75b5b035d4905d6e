"""How far consumer groups are behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from starlette.responses import Response

from leadline_broker.api.v3.errors import NOT_FOUND, V3Error
from leadline_broker.api.v3.groups import GROUPS, TAG, GroupId, members_of
from leadline_broker.api.v3.models.groups import (
    KafkaConsumerGroupLagSummary,
    KafkaConsumerLag,
    KafkaConsumerLagList,
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
from leadline_client.errors import LeaderNotAvailable
from leadline_common.api.group_models import LagBody, LagRow, MemberBody
from leadline_common.http.service_queries import path_of

_NOBODY: Final = ""
router = v3_router(TAG)


class PartitionLag(NamedTuple):
    """A partition with a committed offset, the end of its log, and the member that owns it."""

    topic: str
    partition: int
    committed: int
    end: int
    member: MemberBody | None

    @property
    def lag(self) -> int:
        """How many records are left; an offset may be beyond the end for a moment."""
        return max(0, self.end - self.committed)


@router.get(
    "/consumer-groups/{consumer_group_id}/lags",
    response_model=KafkaConsumerLagList,
    **documented("v3_list_lags", "List the lags of a consumer group", READ),
)
async def list_lags(cluster: InCluster, consumer_group_id: GroupId) -> Response:
    """Return the lag in each partition with a committed offset, by topic and number.

    404 if the group has committed no offset.
    """
    rows = await _lags(cluster, consumer_group_id)
    items = (lag_of(cluster, consumer_group_id, row) for row in rows)
    own = cluster.links.listed(GROUPS, consumer_group_id, "lags")
    return await list_response("KafkaConsumerLagList", own, items)


@router.get(
    "/consumer-groups/{consumer_group_id}/lags/{topic_name}/partitions/{partition_id}",
    **documented("v3_read_lag", "Get the lag of a consumer group in a partition", READ),
)
async def read_lag(
    cluster: InCluster, consumer_group_id: GroupId, topic_name: TopicName, partition_id: PartitionId
) -> KafkaConsumerLag:
    """Return the lag in a partition, 404 if the group has committed no offset there."""
    [row] = await _lags(cluster, consumer_group_id, (topic_name, partition_id))
    return lag_of(cluster, consumer_group_id, row)


@router.get(
    "/consumer-groups/{consumer_group_id}/lag-summary",
    **documented("v3_read_lag_summary", "Get the lag of a consumer group", READ),
)
async def read_lag_summary(
    cluster: InCluster, consumer_group_id: GroupId
) -> KafkaConsumerGroupLagSummary:
    """Return the greatest lag in a partition, and the sum of all.

    404 if the group has committed no offset.
    """
    return summary_of(cluster, consumer_group_id, await _lags(cluster, consumer_group_id))


async def _lags(
    cluster: ClusterView, group: str, only: tuple[str, int] | None = None
) -> list[PartitionLag]:
    """Return the lags of a group, or only that of one partition.

    Raises:
        V3Error: it has committed no offset there.
        LeaderNotAvailable: the end of a partition is not known now; leaving it out would
            show a group as further than it is.

    """
    coordinator = cluster.context.coordinator
    found = await coordinator.get(path_of("groups", group, "lag"), LagBody)
    members = await members_of(cluster, group)
    wanted = [row for row in found.partitions if only in (None, (row.topic, row.partition))]
    lags = known_lags(cluster, wanted, members)
    if not lags:
        raise V3Error(NOT_FOUND, f"group {group} has no committed offset there")
    return lags


def known_lags(
    cluster: ClusterView, rows: Sequence[LagRow], members: Mapping[str, MemberBody]
) -> list[PartitionLag]:
    """Return the lags where an offset is committed, without partitions that no longer exist.

    Raises:
        LeaderNotAvailable: the end of a partition is not known now.

    """
    lags = []
    for row in sorted(rows, key=lambda one: (one.topic, one.partition)):
        if row.committed is None or cluster.metadata.partition(row.topic, row.partition) is None:
            continue
        if row.end is None:
            raise LeaderNotAvailable(f"the end of {row.topic}-{row.partition} is not known now")
        owner = members.get(row.member or _NOBODY)
        lags.append(PartitionLag(row.topic, row.partition, row.committed, row.end, owner))
    return lags


def lag_of(cluster: ClusterView, group: str, row: PartitionLag) -> KafkaConsumerLag:
    """Return a lag as the API shows it."""
    path = (GROUPS, group, "lags", row.topic, "partitions", row.partition)
    parts = f"consumer-group={group}", f"topic={row.topic}", f"lag={row.partition}"
    owner = row.member
    return KafkaConsumerLag(
        metadata=cluster.links.resource(path, *parts),
        cluster_id=cluster.cluster_id,
        consumer_group_id=group,
        topic_name=row.topic,
        partition_id=row.partition,
        current_offset=row.committed,
        log_end_offset=row.end,
        lag=row.lag,
        consumer_id=owner.id if owner else _NOBODY,
        instance_id=owner.instance_id if owner else None,
        client_id=owner.client_id if owner else _NOBODY,
    )


def summary_of(
    cluster: ClusterView, group: str, rows: Sequence[PartitionLag]
) -> KafkaConsumerGroupLagSummary:
    """Return the summary of some lags, at least one; the first of the greatest counts."""
    links, most = cluster.links, max(rows, key=lambda row: row.lag)
    owner = most.member
    consumers = (GROUPS, group, "consumers")
    return KafkaConsumerGroupLagSummary(
        metadata=links.resource(
            (GROUPS, group, "lag-summary"), f"consumer-group={group}", "lag-summary"
        ),
        cluster_id=links.cluster_id,
        consumer_group_id=group,
        max_lag_consumer_id=owner.id if owner else _NOBODY,
        max_lag_instance_id=owner.instance_id if owner else None,
        max_lag_client_id=owner.client_id if owner else _NOBODY,
        max_lag_topic_name=most.topic,
        max_lag_partition_id=most.partition,
        max_lag=most.lag,
        total_lag=sum(row.lag for row in rows),
        max_lag_consumer=links.related(*consumers, *([owner.id] if owner else [])),
        max_lag_partition=links.related("topics", most.topic, "partitions", most.partition),
    )
