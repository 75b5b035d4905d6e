"""The bodies about clusters, brokers, their removal, and what Leadline has no state for."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from leadline_broker.api.v3.models.envelope import Int32, Listed, Metadata, Relationship, Strict

CLUSTER_ID = "3f0c6cbe4e6b4f6f8a8e0f0d8f4b6f11"
"""What the id of a cluster looks like, for examples."""


class KafkaCluster(Strict):
    """A cluster; `controller` is null, because no broker is the controller."""

    kind: Literal["KafkaCluster"] = "KafkaCluster"
    metadata: Metadata
    cluster_id: str
    controller: Relationship | None = None
    acls: Relationship
    brokers: Relationship
    broker_configs: Relationship
    consumer_groups: Relationship
    topics: Relationship
    partition_reassignments: Relationship


class KafkaClusterList(Listed[KafkaCluster]):
    """The cluster of the broker that answers, and no other."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "kind": "KafkaClusterList",
                "metadata": {"self": "http://127.0.0.1:9091/v3/clusters", "next": None},
                "data": [],
            }
        }
    )

    kind: Literal["KafkaClusterList"] = "KafkaClusterList"


class KafkaBroker(Strict):
    """A live broker; `host` and `port` are those of its URL for clients."""

    kind: Literal["KafkaBroker"] = "KafkaBroker"
    metadata: Metadata
    cluster_id: str
    broker_id: Int32
    host: str | None
    port: Int32 | None
    rack: str | None
    configs: Relationship
    partition_replicas: Relationship


class KafkaBrokerList(Listed[KafkaBroker]):
    """The live brokers, by id."""

    kind: Literal["KafkaBrokerList"] = "KafkaBrokerList"


class KafkaBrokerRemoval(Strict):
    """A removal that has begun: the broker is being drained."""

    kind: Literal["KafkaBrokerRemoval"] = "KafkaBrokerRemoval"
    metadata: Metadata
    cluster_id: str
    broker_id: Int32
    broker_task: Relationship
    broker: Relationship


class KafkaBrokerRemovalList(Listed[KafkaBrokerRemoval]):
    """Removals that have begun, in the order of the request."""

    kind: Literal["KafkaBrokerRemovalList"] = "KafkaBrokerRemovalList"


class BrokersToRemove(Strict):
    """The brokers to remove."""

    model_config = ConfigDict(json_schema_extra={"example": {"broker_ids": [3]}})

    broker_ids: list[Annotated[Int32, Field(ge=0)]] = Field(min_length=1, max_length=1_000)


class UnregisteredBroker(Strict):
    """A broker that is no longer known."""

    cluster_id: str
    broker_id: Int32


class KafkaBrokerTask(Strict):
    """The latest removal of a broker. `shutdown_scheduled` is false: an operator stops it."""

    kind: Literal["KafkaBrokerTask"] = "KafkaBrokerTask"
    metadata: Metadata
    cluster_id: str
    broker_id: Int32
    task_type: Literal["add-broker", "remove-broker"]
    task_status: Literal["FAILED", "IN_PROGRESS", "SUCCESS", "UNKNOWN"]
    shutdown_scheduled: bool | None
    sub_task_statuses: dict[str, str]
    created_at: str = Field(description="RFC 3339")
    updated_at: str = Field(description="RFC 3339")
    error_code: Int32 | None
    error_message: str | None
    broker: Relationship


class KafkaBrokerTaskList(Listed[KafkaBrokerTask]):
    """The latest removal of each broker, by id."""

    kind: Literal["KafkaBrokerTaskList"] = "KafkaBrokerTaskList"


class KafkaBalancerStatus(Strict):
    """The balancer, which is disabled: an operator balances with plans (`POST /v1/plans`)."""

    kind: Literal["KafkaBalancerStatus"] = "KafkaBalancerStatus"
    metadata: Metadata
    cluster_id: str
    status: Literal["DISABLED"] = "DISABLED"
    error_code: Int32 | None = None
    error_message: str | None = None
    any_uneven_load: Relationship
    broker_tasks: Relationship
