"""The operations of the v3 API, as a table in which each can follow those before it.

`C` stands for the path of the cluster. Names in braces are filled in by the test: the topic
`{topic}`, the group `{group}` with the live member `{consumer}`, and `{new}`, a topic to create.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

OK, CREATED, ACCEPTED, NO_CONTENT, MULTI = 200, 201, 202, 204, 207


@dataclass(frozen=True, slots=True)
class V3Operation:
    """One operation with a request that succeeds, and the type of its answer ("" for none)."""

    method: str
    path: str
    body: str = ""
    status: int = OK
    request: Any = None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def _get(path: str, body: str) -> V3Operation:
    return V3Operation("GET", path, body)


def _change(method: str, path: str, request: Any = None) -> V3Operation:
    return V3Operation(method, path, "", NO_CONTENT, request)


_T: Final = "C/topics/{topic}"
_P: Final = f"{_T}/partitions/0"
_G: Final = "C/consumer-groups/{group}"
_M: Final = f"{_G}/consumers/{{consumer}}"
_SET: Final = {"value": "7200000"}
_ALTER: Final = {
    "data": [
        {"name": "log.retention.ms", "value": "7200000"},
        {"name": "log.segment.bytes", "operation": "DELETE"},
    ]
}
_ALTER_TOPIC: Final = {"data": [{"name": "retention.ms", "value": "7200000"}]}
_RECORD: Final = {"partition_id": 0, "value": {"type": "STRING", "data": "v"}}
_MANY: Final = {"data": [{"topic_name": "{topic}", "configs": _ALTER_TOPIC["data"]}]}

OPERATIONS: Final = (
    _get("/clusters", "Cluster[]"),
    _get("C", "Cluster"),
    _get("C/brokers", "Broker[]"),
    _get("C/brokers/1", "Broker"),
    _get("C/brokers/1/partition-replicas", "Replica[]"),
    _change("PUT", "C/broker-configs/log.retention.ms", _SET),
    _get("C/broker-configs", "ClusterConfig[]"),
    _get("C/broker-configs/log.retention.ms", "ClusterConfig"),
    _change("POST", "C/broker-configs:alter", _ALTER),
    _change("DELETE", "C/broker-configs/log.retention.ms"),
    _change("PUT", "C/brokers/1/configs/log.retention.ms", _SET),
    _get("C/brokers/-/configs", "BrokerConfig[]"),
    _get("C/brokers/1/configs", "BrokerConfig[]"),
    _get("C/brokers/1/configs/log.retention.ms", "BrokerConfig"),
    _change("POST", "C/brokers/1/configs:alter", _ALTER),
    _change("DELETE", "C/brokers/1/configs/log.retention.ms"),
    V3Operation(
        "POST",
        "C/topics",
        "Topic",
        CREATED,
        {"topic_name": "{new}", "partitions_count": 1, "replication_factor": 3},
    ),
    V3Operation("PATCH", "C/topics/{new}", "Topic", OK, {"partitions_count": 2}),
    _change("DELETE", "C/topics/{new}"),
    _get("C/topics", "Topic[]"),
    _get(_T, "Topic"),
    _change("PUT", f"{_T}/configs/retention.ms", _SET),
    _change("POST", f"{_T}/configs:alter", _ALTER_TOPIC),
    _change("POST", "C/topics/-/configs:alter", _MANY),
    _get("C/topics/-/configs", "TopicConfig[]"),
    _get(f"{_T}/configs", "TopicConfig[]"),
    _get(f"{_T}/default-configs", "TopicConfig[]"),
    _get(f"{_T}/configs/retention.ms", "TopicConfig"),
    _change("DELETE", f"{_T}/configs/retention.ms"),
    _get(f"{_T}/partitions", "Partition[]"),
    _get(_P, "Partition"),
    _get(f"{_P}/offset", "PartitionOffsets"),
    _get(f"{_P}/offset?offset_type=earliest_and_latest", "PartitionOffsets"),
    _get(f"{_P}/replicas", "Replica[]"),
    _get(f"{_P}/replicas/1", "Replica"),
    _get("C/topics/-/partitions/-/reassignment", "Reassignment[]"),
    _get(f"{_T}/partitions/-/reassignment", "Reassignment[]"),
    _get("C/topics/-/partitions/-/replica-status", "ReplicaStatus[]"),
    _get(f"{_T}/partitions/-/replica-status", "ReplicaStatus[]"),
    _get(f"{_P}/replica-status", "ReplicaStatus[]"),
    V3Operation("POST", f"{_T}/records", "Report", OK, _RECORD),
    V3Operation(
        "POST", f"{_T}/records:batch", "Results", MULTI, {"entries": [{"id": "1", **_RECORD}]}
    ),
    _get("C/consumer-groups", "ConsumerGroup[]"),
    _get(_G, "ConsumerGroup"),
    _get(f"{_G}/consumers", "Consumer[]"),
    _get(_M, "Consumer"),
    _get(f"{_M}/assignments", "Assignment[]"),
    _get(f"{_M}/assignments/{{topic}}/partitions/0", "Assignment"),
    _get(f"{_G}/lags", "Lag[]"),
    _get(f"{_G}/lags/{{topic}}/partitions/0", "Lag"),
    _get(f"{_G}/lag-summary", "LagSummary"),
    _get("C/brokers/-/tasks", "BrokerTask[]"),
    _get("C/balancer", "BalancerStatus"),
)
"""All but those of reassignments and removals in progress, and ACLs, which have tests of theirs."""
