"""The bodies about consumer groups, their members and their lag."""

from __future__ import annotations

from typing import Literal

from leadline_broker.api.v3.models.envelope import Int32, Listed, Metadata, Relationship, Strict

GroupState = Literal[
    "UNKNOWN",
    "PREPARING_REBALANCE",
    "COMPLETING_REBALANCE",
    "ASSIGNING",
    "RECONCILING",
    "STABLE",
    "DEAD",
    "EMPTY",
]


class KafkaConsumerGroup(Strict):
    """A consumer group; `coordinator` is the broker that answers, as any one reaches the group."""

    kind: Literal["KafkaConsumerGroup"] = "KafkaConsumerGroup"
    metadata: Metadata
    cluster_id: str
    consumer_group_id: str
    is_simple: bool
    partition_assignor: str
    state: GroupState
    type: Literal["CLASSIC"] = "CLASSIC"
    is_mixed_consumer_group: bool = False
    coordinator: Relationship
    consumer: Relationship
    consumers: Relationship
    lag_summary: Relationship


class KafkaConsumerGroupList(Listed[KafkaConsumerGroup]):
    """Consumer groups, by name."""

    kind: Literal["KafkaConsumerGroupList"] = "KafkaConsumerGroupList"


class KafkaConsumer(Strict):
    """A member of a group."""

    kind: Literal["KafkaConsumer"] = "KafkaConsumer"
    metadata: Metadata
    cluster_id: str
    consumer_group_id: str
    consumer_id: str
    instance_id: str | None
    client_id: str
    assignments: Relationship


class KafkaConsumerList(Listed[KafkaConsumer]):
    """The members of a group, by id."""

    kind: Literal["KafkaConsumerList"] = "KafkaConsumerList"


class KafkaConsumerAssignment(Strict):
    """A partition that a member owns."""

    kind: Literal["KafkaConsumerAssignment"] = "KafkaConsumerAssignment"
    metadata: Metadata
    cluster_id: str
    consumer_group_id: str
    consumer_id: str
    topic_name: str
    partition_id: Int32
    partition: Relationship
    lag: Relationship


class KafkaConsumerAssignmentList(Listed[KafkaConsumerAssignment]):
    """The partitions that a member owns, by topic and number."""

    kind: Literal["KafkaConsumerAssignmentList"] = "KafkaConsumerAssignmentList"


class KafkaConsumerLag(Strict):
    """The lag of a group in a partition; the ids are empty while no member owns it."""

    kind: Literal["KafkaConsumerLag"] = "KafkaConsumerLag"
    metadata: Metadata
    cluster_id: str
    consumer_group_id: str
    topic_name: str
    partition_id: Int32
    current_offset: int
    log_end_offset: int
    lag: int
    consumer_id: str
    instance_id: str | None
    client_id: str


class KafkaConsumerLagList(Listed[KafkaConsumerLag]):
    """The lag in each partition with a committed offset, by topic and number."""

    kind: Literal["KafkaConsumerLagList"] = "KafkaConsumerLagList"


class KafkaConsumerGroupLagSummary(Strict):
    """The greatest lag of a group, and the sum of all."""

    kind: Literal["KafkaConsumerGroupLagSummary"] = "KafkaConsumerGroupLagSummary"
    metadata: Metadata
    cluster_id: str
    consumer_group_id: str
    max_lag_consumer_id: str
    max_lag_instance_id: str | None
    max_lag_client_id: str
    max_lag_topic_name: str
    max_lag_partition_id: Int32
    max_lag: int
    total_lag: int
    max_lag_consumer: Relationship
    max_lag_partition: Relationship
