"""The types of the v3 API's bodies, as a table, and a check of bodies against it.

`!` marks what is always there; the rest may be absent or null. `@` is a relationship, `url` an
absolute link, `time` one of RFC 3339 with an offset, `T[]` a list, and `A|B` one of some texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

_CONFIG: Final = {
    "cluster_id": "str!",
    "name": "str!",
    "value": "str",
    "is_default": "bool!",
    "is_read_only": "bool!",
    "is_sensitive": "bool!",
    "source": "DYNAMIC_TOPIC_CONFIG|DYNAMIC_BROKER_CONFIG|DYNAMIC_DEFAULT_BROKER_CONFIG|"
    "STATIC_BROKER_CONFIG|DEFAULT_CONFIG!",
    "synonyms": "Synonym[]!",
}
_IN_PARTITION: Final = {"cluster_id": "str!", "topic_name": "str!", "partition_id": "int32!"}
_OF_GROUP: Final = {"cluster_id": "str!", "consumer_group_id": "str!"}
TYPES: Final[Mapping[str, Mapping[str, str]]] = {
    "Cluster": {
        "kind": "KafkaCluster!",
        "cluster_id": "str!",
        "controller": "@",
        "acls": "@!",
        "brokers": "@!",
        "broker_configs": "@!",
        "consumer_groups": "@!",
        "topics": "@!",
        "partition_reassignments": "@!",
    },
    "Broker": {
        "kind": "KafkaBroker!",
        "cluster_id": "str!",
        "broker_id": "int32!",
        "host": "str!",
        "port": "int32!",
        "rack": "str",
        "configs": "@!",
        "partition_replicas": "@!",
    },
    "Synonym": {"name": "str!", "value": "str", "source": "str!"},
    "BrokerConfig": {"kind": "KafkaBrokerConfig!", "broker_id": "int32!", **_CONFIG},
    "ClusterConfig": {"kind": "KafkaClusterConfig!", "config_type": "BROKER!", **_CONFIG},
    "TopicConfig": {"kind": "KafkaTopicConfig!", "topic_name": "str!", **_CONFIG},
    "Topic": {
        "kind": "KafkaTopic!",
        "cluster_id": "str!",
        "topic_name": "str!",
        "is_internal": "bool!",
        "replication_factor": "int32!",
        "partitions_count": "int32!",
        "partitions": "@!",
        "configs": "@!",
        "partition_reassignments": "@!",
        "authorized_operations": "str[]",
    },
    "Partition": {
        "kind": "KafkaPartition!",
        **_IN_PARTITION,
        "leader": "@",
        "replicas": "@!",
        "reassignment": "@!",
    },
    "PartitionOffsets": {
        "kind": "KafkaPartitionWithOffsets!",
        **_IN_PARTITION,
        "earliest_offset": "int64!",
        "latest_offset": "int64!",
    },
    "Replica": {
        "kind": "KafkaReplica!",
        **_IN_PARTITION,
        "broker_id": "int32!",
        "is_leader": "bool!",
        "is_in_sync": "bool!",
        "broker": "@!",
    },
    "Reassignment": {
        "kind": "KafkaReassignment!",
        **_IN_PARTITION,
        "adding_replicas": "int32[]!",
        "removing_replicas": "int32[]!",
        "replicas": "@!",
    },
    "ReplicaStatus": {
        "kind": "KafkaReplicaStatus!",
        **_IN_PARTITION,
        "broker_id": "int32!",
        "is_leader": "bool!",
        "is_observer": "bool!",
        "is_isr_eligible": "bool!",
        "is_in_isr": "bool!",
        "is_caught_up": "bool!",
        "log_start_offset": "int64!",
        "log_end_offset": "int64!",
        "last_caught_up_time_ms": "int64!",
        "last_fetch_time_ms": "int64!",
        "link_name": "str",
    },
    "ConsumerGroup": {
        "kind": "KafkaConsumerGroup!",
        **_OF_GROUP,
        "is_simple": "bool!",
        "partition_assignor": "str!",
        "state": "UNKNOWN|PREPARING_REBALANCE|COMPLETING_REBALANCE|ASSIGNING|RECONCILING|STABLE|"
        "DEAD|EMPTY!",
        "type": "CLASSIC|CONSUMER|SHARE|UNKNOWN!",
        "is_mixed_consumer_group": "bool!",
        "coordinator": "@!",
        "consumers": "@!",
        "consumer": "@!",
        "lag_summary": "@!",
    },
    "Consumer": {
        "kind": "KafkaConsumer!",
        **_OF_GROUP,
        "consumer_id": "str!",
        "instance_id": "str",
        "client_id": "str!",
        "assignments": "@!",
    },
    "Assignment": {
        "kind": "KafkaConsumerAssignment!",
        **_OF_GROUP,
        **_IN_PARTITION,
        "consumer_id": "str!",
        "partition": "@!",
        "lag": "@!",
    },
    "Lag": {
        "kind": "KafkaConsumerLag!",
        **_OF_GROUP,
        **_IN_PARTITION,
        "current_offset": "int64!",
        "log_end_offset": "int64!",
        "lag": "int64!",
        "consumer_id": "str!",
        "instance_id": "str",
        "client_id": "str!",
    },
    "LagSummary": {
        "kind": "KafkaConsumerGroupLagSummary!",
        **_OF_GROUP,
        "max_lag_consumer_id": "str!",
        "max_lag_instance_id": "str",
        "max_lag_client_id": "str!",
        "max_lag_topic_name": "str!",
        "max_lag_partition_id": "int32!",
        "max_lag": "int64!",
        "total_lag": "int64!",
        "max_lag_consumer": "@!",
        "max_lag_partition": "@!",
    },
    "BrokerRemoval": {
        "kind": "KafkaBrokerRemoval!",
        "cluster_id": "str!",
        "broker_id": "int32!",
        "broker_task": "@!",
        "broker": "@!",
    },
    "BrokerTask": {
        "kind": "KafkaBrokerTask!",
        "cluster_id": "str!",
        "broker_id": "int32!",
        "task_type": "add-broker|remove-broker!",
        "task_status": "FAILED|IN_PROGRESS|SUCCESS|UNKNOWN!",
        "shutdown_scheduled": "bool",
        "sub_task_statuses": "map!",
        "created_at": "time!",
        "updated_at": "time!",
        "error_code": "int32",
        "error_message": "str",
        "broker": "@!",
    },
    "BalancerStatus": {
        "kind": "KafkaBalancerStatus!",
        "cluster_id": "str!",
        "status": "str!",
        "error_code": "int32",
        "error_message": "str",
        "any_uneven_load": "@!",
        "broker_tasks": "@!",
    },
    "Unregistered": {"cluster_id": "str!", "broker_id": "int32!"},
    "Part": {"type": "str", "size": "int64!"},
    "Report": {
        "error_code": "int32!",
        "message": "str",
        "cluster_id": "str",
        "topic_name": "str",
        "partition_id": "int32",
        "offset": "int64",
        "timestamp": "time",
        "key": "Part",
        "value": "Part",
    },
    "Success": {
        "id": "str!",
        "cluster_id": "str!",
        "topic_name": "str!",
        "partition_id": "int32!",
        "offset": "int64!",
        "timestamp": "time!",
        "key": "Part",
        "value": "Part",
    },
    "Failure": {"id": "str!", "error_code": "int32!", "message": "str!"},
    "Results": {"successes": "Success[]!", "failures": "Failure[]!"},
    "Error": {"error_code": "int32!", "message": "str!"},
    "Metadata": {"self": "url!", "resource_name": "crn!"},
    "ListMetadata": {"self": "url!", "next": "null"},
}
"""The members of each type, and their types."""
_BARE: Final = frozenset(
    {
        "Error",
        "Failure",
        "ListMetadata",
        "Metadata",
        "Part",
        "Report",
        "Results",
        "Success",
        "Synonym",
        "Unregistered",
    }
)
"""Types without metadata."""
_BITS: Final = {"int32": 31, "int64": 63}


def problems_of(body: Any, kind: str, base: str) -> list[str]:
    """Return how a body differs from its type; `kind` may be a list's, and `base` begins links."""
    return [*_body_problems(body, kind, base)]


def _body_problems(body: Any, kind: str, base: str) -> Iterator[str]:
    if not kind.endswith("[]"):
        yield from _type_problems(body, kind, base, kind)
        return
    item = kind.removesuffix("[]")
    expected = TYPES[item]["kind"].rstrip("!") + "List"
    if body.get("kind") != expected or set(body) != {"kind", "metadata", "data"}:
        yield f"{kind}: no envelope of {expected}: {sorted(body)}"
        return
    yield from _type_problems(body["metadata"], "ListMetadata", base, "metadata")
    for number, one in enumerate(body["data"]):
        yield from _type_problems(one, item, base, f"data[{number}]")


def _type_problems(body: Any, kind: str, base: str, where: str) -> Iterator[str]:
    if not isinstance(body, dict):
        yield f"{where}: no object"
        return
    members = dict(TYPES[kind]) if kind in _BARE else {"metadata": "Metadata!", **TYPES[kind]}
    yield from (f"{where}: has {name}, too" for name in body.keys() - members.keys())
    for name, stated in members.items():
        yield from _member_problems(body.get(name), stated, base, f"{where}.{name}")


def _member_problems(value: Any, stated: str, base: str, where: str) -> Iterator[str]:
    required, kind = stated.endswith("!"), stated.rstrip("!")
    if value is None:
        if required:
            yield f"{where}: is missing"
    elif kind.endswith("[]"):
        if not isinstance(value, list):
            yield f"{where}: no list"
            return
        for number, one in enumerate(value):
            yield from _member_problems(one, kind.removesuffix("[]"), base, f"{where}[{number}]")
    elif kind in TYPES:
        yield from _type_problems(value, kind, base, where)
    elif not _is_a(value, kind, base):
        yield f"{where}: {value!r} is no {kind}"


def _is_a(value: Any, kind: str, base: str) -> bool:
    if kind in _BITS:
        return type(value) is int and -(2 ** _BITS[kind]) <= value < 2 ** _BITS[kind]
    checks: dict[str, Callable[[], bool]] = {
        "bool": lambda: isinstance(value, bool),
        "str": lambda: isinstance(value, str),
        "map": lambda: all(isinstance(text, str) for pair in value.items() for text in pair),
        "@": lambda: set(value) == {"related"} and _is_link(value["related"], base),
        "url": lambda: _is_link(value, base),
        "crn": lambda: re.fullmatch(r"crn:///kafka=[^/]+(/[a-z-]+(=[^/]+)?)*", value) is not None,
        "time": lambda: datetime.fromisoformat(value).tzinfo is not None,
        "null": lambda: False,
    }
    return checks[kind]() if kind in checks else value in kind.split("|")


def _is_link(value: str, base: str) -> bool:
    return value.startswith(f"{base}/clusters") and bool(urlsplit(value).scheme)
