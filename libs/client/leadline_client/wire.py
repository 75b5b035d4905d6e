"""The public types of Leadline's HTTP API, as frozen dataclasses.

Units: offsets count records from 0; timestamps are milliseconds since the Unix
epoch; `NO_LEADER` as the leader means that the partition has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final, Generic, Literal, NamedTuple, Protocol, TypeVar

from leadline_client.named_tuples import maker_of
from leadline_client.type_parameters import K, V

NO_LEADER = -1
"""The leader id of a partition without a leader."""

MOST_STAGED: Final = 10_000
"""The most staged uploads of a partition that one publish may name."""

Acks = Literal["all", "1", "0"]
"""When a produce is acknowledged: once committed, once appended, or never."""

ReplicaChoice = Literal["leader", "any"]
"""Who serves a read: the leader alone, or any in-sync replica."""

RecordFormat = Literal["string", "json", "base64"]
"""How keys and values appear in JSON bodies."""


class TopicPartition(NamedTuple):
    """One partition of a topic; `str` gives Kafka's form, `orders-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class LogPosition(NamedTuple):
    """The offset of the next record, and the leader epoch of the record before it (KIP-320).

    The epoch shows whether the log was truncated below the offset; None if it is not known.
    """

    offset: int
    leader_epoch: int | None = None


class Record(NamedTuple, Generic[K, V]):
    """One record of a partition, as a consumer sees it; `timestamp` in Unix ms.

    Key and value are bytes, or what the consumer's deserializers make of them. A record without a
    value is a tombstone: it stands for the deletion of its key.
    """

    offset: int
    timestamp: int
    key: K | None
    value: V | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


record_of: Final[Callable[[tuple[Any, ...]], Record[Any, Any]]] = maker_of(Record)


class SupportsRecord(Protocol):
    """The attributes that an encoder of batches reads; the leader assigns offsets."""

    @property
    def timestamp(self) -> int | None:
        """Milliseconds since the Unix epoch."""

    @property
    def key(self) -> bytes | None:
        """The key, if any."""

    @property
    def value(self) -> bytes | None:
        """The value; None is a tombstone."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """Headers in order; names may repeat."""


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A live broker; `incarnation` is different after every restart."""

    id: int
    url: str
    rack: str | None
    incarnation: int


@dataclass(frozen=True, slots=True)
class ControllerInfo:
    """The active controller; `epoch` rises by one with every election."""

    id: int
    url: str
    epoch: int


class GroupState(StrEnum):
    """What a consumer group is doing."""

    EMPTY = "empty"
    RECOVERING = "recovering"
    JOINING = "joining"
    STOPPING = "stopping"
    RECORDING = "recording"
    STARTING = "starting"
    STABLE = "stable"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition: its leader and leader epoch, in-sync replicas, and all replicas."""

    partition: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic and its partitions, in partition order."""

    name: str
    topic_id: str
    partitions: tuple[PartitionInfo, ...]


@dataclass(frozen=True, slots=True)
class Metadata:
    """One consistent snapshot of the cluster; `version` never goes backwards."""

    cluster_id: str
    version: int
    controller: ControllerInfo | None
    brokers: Mapping[int, BrokerInfo]
    topics: Mapping[str, TopicInfo]

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Metadata:
        """Read the response of `GET /v1/metadata`."""
        controller = document.get("controller")
        return cls(
            cluster_id=document["cluster_id"],
            version=document["version"],
            controller=_known(ControllerInfo, controller) if controller else None,
            brokers={row["id"]: _known(BrokerInfo, row) for row in document["brokers"]},
            topics=_topics(document["topics"]),
        )


@dataclass(frozen=True, slots=True)
class MetadataChanges:
    """What has changed in the metadata since a state that the reader has.

    `document` has the topics that were created, recreated or changed as a whole, `rows` the changed
    partitions of others. `deleted` are topics that are gone.
    """

    document: Metadata
    rows: Mapping[str, TopicInfo]
    deleted: tuple[str, ...]

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> MetadataChanges:
        """Read the response of `GET /v1/metadata?changed_after=…` that has `changed_after`."""
        rows = _topics(answer["changed_rows"])
        return cls(Metadata.from_json(answer), rows, tuple(answer["deleted_topics"]))


def _topics(topics: Mapping[str, Any]) -> dict[str, TopicInfo]:
    return {
        name: TopicInfo(name, topic["topic_id"], _partitions(topic["partitions"]))
        for name, topic in topics.items()
    }


_Row = TypeVar("_Row", BrokerInfo, ControllerInfo)


def _known(kind: type[_Row], members: Mapping[str, Any]) -> _Row:
    """Build a row from the members that this release knows; later releases may send more."""
    return kind(**{field.name: members[field.name] for field in fields(kind)})


def _partitions(rows: list[Any]) -> tuple[PartitionInfo, ...]:
    return tuple(
        PartitionInfo(partition, leader, epoch, tuple(isr), tuple(replicas))
        for partition, leader, epoch, isr, replicas in rows
    )


@dataclass(frozen=True, slots=True)
class ProduceResult:
    """The offsets of the records of one request: consecutive from `base_offset`."""

    base_offset: int
    leader_epoch: int
    count: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class FetchResult:
    """Records of one partition; the next fetch begins at `next_offset` and states `last_epoch`."""

    records: tuple[Record, ...]
    high_watermark: int
    log_start_offset: int
    leader_epoch: int
    next_offset: int
    last_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """The readable range of a partition is [log_start_offset, high_watermark).

    `last_epoch` is the leader epoch of the last readable record, None if it is not known.
    """

    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    leader_epoch: int
    last_epoch: int | None = None


class EpochEnd(NamedTuple):
    """Where a leader epoch ends in a leader's log, exclusive.

    `epoch` is the latest one in the log that is not above the one in question, -1 if there is none.
    """

    epoch: int
    end_offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create, with counts or an assignment (first replica = preferred leader)."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    replica_assignment: Mapping[int, tuple[int, ...]] | None = None
    configs: Mapping[str, str] = field(default_factory=dict)
