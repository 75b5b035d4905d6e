"""Request and response bodies of the administration: cluster, brokers, topics, elections."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from leadline_common.elections import ElectionReason

ModelT = TypeVar("ModelT", bound=BaseModel)
BrokerId = Annotated[int, Field(ge=0, le=2**31 - 1, strict=True)]
Count = Annotated[int, Field(ge=1, le=200_000, strict=True)]
Replicas = list[BrokerId]
PartitionKey = Annotated[str, Field(pattern=r"^(0|[1-9]\d{0,5})$")]

_ID = "b1946ac92492d2347c6235b4d2611184"
_CONTROLLER = {"id": 1, "url": "http://127.0.0.1:8081", "epoch": 3}
_BROKER = {
    "id": 2,
    "url": "http://127.0.0.1:9092",
    "host": "127.0.0.1",
    "port": 9092,
    "rack": "a",
    "incarnation": 4,
    "leaders": 80,
    "replicas": 240,
    "directory_id": "0f3c8a0e6b2d4a54b0b8c1d2e3f4a5b6",
    "directory_epoch": 1,
    "misplaced": 0,
    "release": "0.2.0",
    "oldest_protocol": 1,
    "newest_protocol": 1,
}
_PARTITION = {
    "partition": 0,
    "leader": 2,
    "leader_epoch": 5,
    "isr": [2, 3],
    "replicas": [1, 2, 3],
    "eligible": [],
    "misplaced": [],
}
_TOPIC = {
    "name": "orders",
    "topic_id": _ID,
    "partitions": 6,
    "replication_factor": 3,
    "offline_partitions": 0,
    "under_replicated_partitions": 0,
}


def example(value: dict[str, Any]) -> ConfigDict:
    """Return a model configuration that refuses unknown members and documents an example."""
    return ConfigDict(extra="forbid", json_schema_extra={"example": value})


def changed_example(model: type[ModelT], **changes: Any) -> ModelT:
    """Return the example that a model documents, with changes."""
    return model.model_validate(example_of(model) | changes)


def example_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the example that a model documents."""
    shown: dict[str, Any] = model.model_json_schema()["example"]
    return shown


class ControllerBody(BaseModel):
    """The active controller; `epoch` rises by one with every controller election."""

    id: int
    url: str
    epoch: int


class ThisController(BaseModel):
    """The controller that answers, and the active one."""

    model_config = example(
        {
            "id": 1,
            "url": "http://127.0.0.1:8081",
            "active": True,
            "controller": _CONTROLLER,
        }
    )

    id: int
    url: str
    active: bool = Field(description="Whether this process is the active controller")
    controller: ControllerBody | None


class ClusterBody(BaseModel):
    """A summary of the cluster."""

    model_config = example(
        {
            "cluster_id": "3f0c6cbe4e6b4f6f8a8e0f0d8f4b6f11",
            "version": 1042,
            "controller": _CONTROLLER,
            "brokers": 3,
            "topics": 12,
            "partitions": 240,
            "offline_partitions": 0,
            "under_replicated_partitions": 2,
        }
    )

    cluster_id: str
    version: int = Field(description="The metadata version of these numbers")
    controller: ControllerBody | None
    brokers: int = Field(description="Live brokers")
    topics: int
    partitions: int
    offline_partitions: int = Field(description="Partitions without a leader")
    under_replicated_partitions: int = Field(description="Partitions whose ISR lacks a replica")


class BrokerBody(BaseModel):
    """A live broker with its numbers of leaders and replicas."""

    model_config = example(_BROKER)

    id: int
    url: str
    host: str
    port: int
    rack: str | None
    incarnation: int = Field(description="Rises with every start of the broker")
    leaders: int = Field(description="Partitions that the broker leads")
    replicas: int = Field(description="Partitions of which the broker has a replica")
    directory_id: str = Field(description="Made with the broker's log directory")
    directory_epoch: int = Field(
        description="1 for the broker's first log directory; higher for each other one"
    )
    misplaced: int = Field(
        description="Partitions in whose ISR the broker is, but with another log directory than "
        "the one that it became a member with: it cannot lead them without data loss"
    )
    release: str = Field(description="Empty if its release did not register it yet")
    oldest_protocol: int = Field(description="The oldest protocol version that it speaks")
    newest_protocol: int = Field(description="The newest protocol version that it speaks")


class BrokersBody(BaseModel):
    """The live brokers, by id."""

    model_config = example({"brokers": [_BROKER]})

    brokers: list[BrokerBody]


class PartitionBody(BaseModel):
    """The leader and the replicas of a partition."""

    model_config = example(_PARTITION)

    partition: int
    leader: int = Field(description="-1 if there is none")
    leader_epoch: int = Field(description="-1 if there has never been a leader")
    isr: list[int]
    replicas: list[int] = Field(description="In order of preference")
    eligible: list[int] = Field(
        description="Replicas outside the ISR that hold every committed record"
    )
    misplaced: list[int] = Field(
        description="Those of `isr` and `eligible` that are live, but registered with another log "
        "directory than the one that they became members with: no candidates of a clean election"
    )


class PartitionsBody(BaseModel):
    """The partitions of a topic."""

    model_config = example({"partitions": [_PARTITION]})

    partitions: list[PartitionBody]


class TopicSummary(BaseModel):
    """A summary of a topic."""

    model_config = example(_TOPIC)

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    offline_partitions: int
    under_replicated_partitions: int


class TopicsBody(BaseModel):
    """All topics, by name."""

    model_config = example({"topics": [_TOPIC]})

    topics: list[TopicSummary]


class TopicBody(BaseModel):
    """A topic with its settings and partitions."""

    model_config = example(
        {
            "name": "orders",
            "topic_id": _ID,
            "configs": {"retention.ms": "86400000"},
            "partitions": [_PARTITION],
        }
    )

    name: str
    topic_id: str
    configs: dict[str, str]
    partitions: list[PartitionBody]


class NewTopicBody(BaseModel):
    """A topic to create, by counts or by an explicit assignment of replicas."""

    model_config = example({"name": "orders", "partitions": 6, "replication_factor": 3})

    name: str = Field(description="1 to 249 characters of a-z, A-Z, 0-9, '.', '_' and '-'")
    partitions: Count | None = None
    replication_factor: Annotated[int, Field(ge=1, le=32_767, strict=True)] | None = None
    replica_assignment: dict[PartitionKey, Replicas] | None = Field(
        default=None,
        description="Replicas by partition (0, 1, 2, … without gaps), preferred leader first",
    )
    configs: dict[str, str | int | bool] = Field(
        default_factory=dict, description="The topic's own settings, e.g. retention.ms"
    )
    dry_run: bool = Field(default=False, description="Validate and place, but create nothing")


class CreatedTopic(BaseModel):
    """A topic that was created, or that a dry run has placed."""

    model_config = example(
        {
            "name": "orders",
            "topic_id": _ID,
            "partitions": 2,
            "replication_factor": 2,
            "replica_assignment": {"0": [1, 2], "1": [2, 3]},
            "dry_run": False,
        }
    )

    name: str
    topic_id: str | None = Field(description="null on a dry run")
    partitions: int
    replication_factor: int
    replica_assignment: dict[str, list[int]]
    dry_run: bool


class DeletedTopic(BaseModel):
    """The deletion of a topic; `complete` once the cluster holds nothing of it any more."""

    model_config = example({"name": "orders", "topic_id": _ID, "complete": True})

    name: str
    topic_id: str
    complete: bool


class TopicPartitionBody(BaseModel, extra="forbid"):
    """The topic and number of a partition."""

    topic: str
    partition: Annotated[int, Field(ge=0, strict=True)]


class ElectionBody(BaseModel):
    """Partitions to elect leaders for; null means every partition."""

    model_config = example(
        {"type": "preferred", "partitions": [{"topic": "orders", "partition": 0}]}
    )

    type: Literal["preferred", "unclean"]
    partitions: Annotated[list[TopicPartitionBody], Field(max_length=200_000)] | None = None
    dry_run: bool = Field(default=False, description="Return the elections, but change nothing")


class PartitionItem(BaseModel):
    """What all items about one partition have."""

    topic: str
    partition: int


class ElectedPartition(PartitionItem):
    """The election of one partition's leader."""

    leader: int
    leader_epoch: int
    isr: list[int]
    previous_leader: int
    previous_isr: list[int]
    reason: ElectionReason
    may_lose: list[int] = Field(
        description="Brokers that may hold committed records which the new leader lacks"
    )


class Elections(BaseModel):
    """The partitions whose leader changed."""

    model_config = example(
        {
            "elected": [
                {
                    "topic": "orders",
                    "partition": 0,
                    "leader": 1,
                    "leader_epoch": 7,
                    "isr": [2, 1],
                    "previous_leader": 2,
                    "previous_isr": [2, 1],
                    "reason": "preferred",
                    "may_lose": [],
                }
            ],
            "dry_run": False,
        }
    )

    elected: list[ElectedPartition]
    dry_run: bool
