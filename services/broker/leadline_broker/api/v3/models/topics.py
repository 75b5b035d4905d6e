"""The bodies about topics, partitions and replicas."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from leadline_broker.api.v3.models.envelope import Int32, Listed, Metadata, Relationship, Strict

BrokerId = Annotated[Int32, Field(ge=0)]


class KafkaTopic(Strict):
    """A topic; `authorized_operations` are listed on request."""

    kind: Literal["KafkaTopic"] = "KafkaTopic"
    metadata: Metadata
    cluster_id: str
    topic_name: str
    is_internal: bool = False
    replication_factor: Int32
    partitions_count: Int32
    partitions: Relationship
    configs: Relationship
    partition_reassignments: Relationship
    authorized_operations: list[str]


class KafkaTopicList(Listed[KafkaTopic]):
    """Topics, by name."""

    kind: Literal["KafkaTopicList"] = "KafkaTopicList"


class KafkaReplicaAssignment(Strict):
    """The replicas of a partition, preferred leader first."""

    partition_id: Annotated[Int32, Field(ge=0)]
    broker_ids: list[BrokerId]


class KafkaNewTopicConfig(Strict):
    """A setting of a new topic."""

    name: str
    value: str | None = None


class KafkaNewTopic(Strict):
    """A topic to create. Counts that are not given are the cluster's defaults."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "topic_name": "payments",
                "partitions_count": 3,
                "replication_factor": 3,
                "configs": [{"name": "retention.ms", "value": "3600000"}],
                "validate_only": True,
            }
        }
    )

    topic_name: str
    partitions_count: Int32 | None = None
    replication_factor: Int32 | None = None
    replicas_assignments: (
        Annotated[list[KafkaReplicaAssignment], Field(max_length=200_000)]
        | Annotated[dict[str, list[BrokerId]], Field(max_length=200_000)]
        | None
    ) = Field(default=None, description="Instead of the counts: the replicas of each partition")
    configs: list[KafkaNewTopicConfig] | None = Field(default=None, max_length=1_000)
    validate_only: bool | None = None


class PartitionsCount(Strict):
    """The number of partitions that a topic shall have."""

    model_config = ConfigDict(json_schema_extra={"example": {"partitions_count": 8}})

    partitions_count: Int32


class KafkaPartition(Strict):
    """A partition; `leader` is null while it has none."""

    kind: Literal["KafkaPartition"] = "KafkaPartition"
    metadata: Metadata
    cluster_id: str
    topic_name: str
    partition_id: Int32
    leader: Relationship | None
    replicas: Relationship
    reassignment: Relationship


class KafkaPartitionList(Listed[KafkaPartition]):
    """The partitions of a topic, by number."""

    kind: Literal["KafkaPartitionList"] = "KafkaPartitionList"


class KafkaPartitionOffsets(Strict):
    """The readable range of a partition: the earliest offset, and the one after the latest."""

    kind: Literal["KafkaPartitionWithOffsets"] = "KafkaPartitionWithOffsets"
    metadata: Metadata
    cluster_id: str
    topic_name: str
    partition_id: Int32
    earliest_offset: int
    latest_offset: int


class KafkaReplica(Strict):
    """A replica of a partition on a broker."""

    kind: Literal["KafkaReplica"] = "KafkaReplica"
    metadata: Metadata
    cluster_id: str
    topic_name: str
    partition_id: Int32
    broker_id: Int32
    is_leader: bool
    is_in_sync: bool
    broker: Relationship


class KafkaReplicaList(Listed[KafkaReplica]):
    """Replicas of a partition in order of preference, or of a broker by topic and partition."""

    kind: Literal["KafkaReplicaList"] = "KafkaReplicaList"


class KafkaReassignment(Strict):
    """The reassignment of a partition that is in progress."""

    kind: Literal["KafkaReassignment"] = "KafkaReassignment"
    metadata: Metadata
    cluster_id: str
    topic_name: str
    partition_id: Int32
    adding_replicas: list[Int32]
    removing_replicas: list[Int32]
    replicas: Relationship


class KafkaReassignmentList(Listed[KafkaReassignment]):
    """Reassignments in progress, by topic and partition."""

    kind: Literal["KafkaReassignmentList"] = "KafkaReassignmentList"


class KafkaReplicaStatus(Strict):
    """How far a replica is. Offsets and times that nobody could tell are -1; times in Unix ms."""

    kind: Literal["KafkaReplicaStatus"] = "KafkaReplicaStatus"
    metadata: Metadata
    cluster_id: str
    topic_name: str
    broker_id: Int32
    partition_id: Int32
    is_leader: bool
    is_observer: bool = False
    is_isr_eligible: bool
    is_in_isr: bool
    is_caught_up: bool
    log_start_offset: int
    log_end_offset: int
    last_caught_up_time_ms: int
    last_fetch_time_ms: int
    link_name: str = ""


class KafkaReplicaStatusList(Listed[KafkaReplicaStatus]):
    """The status of replicas, by topic, partition and broker."""

    kind: Literal["KafkaReplicaStatusList"] = "KafkaReplicaStatusList"
