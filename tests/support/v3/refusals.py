"""Requests of the v3 API that must be refused, with the status and the code of each.

`C` stands for the path of the cluster, `t` is a topic with one partition on three brokers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

JSON: Final = {"content-type": "application/json"}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request, and how it must be answered."""

    method: str
    path: str
    status: int
    code: int
    content: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.content[:60]!r}"


def _get(path: str, status: int, code: int) -> Refusal:
    return Refusal("GET", path, status, code)


def _send(method: str, path: str, status: int, code: int, body: Any) -> Refusal:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Refusal(method, path, status, code, content, JSON)


def _create(status: int, code: int, **topic: Any) -> Refusal:
    return _send("POST", "C/topics", status, code, topic)


def _produce(status: int, code: int, body: Any, path: str = "C/topics/t/records") -> Refusal:
    return _send("POST", path, status, code, body)


def _batch(status: int, code: int, body: Any) -> Refusal:
    return _send("POST", "C/topics/t/records:batch", status, code, body)


_DATA: Final = {"type": "STRING", "data": "x"}
READS: Final = (
    _get("/clusters/another", 404, 404),
    _get("/clusters/another/topics/t", 404, 404),
    _get("/nothing", 404, 404),
    _get("C/nothing", 404, 404),
    _get("C/brokers/9", 404, 404),
    _get("C/brokers/x", 400, 400),
    _get("C/brokers/9/configs", 404, 404),
    _get("C/brokers/1/configs/none", 404, 404),
    _get("C/brokers/9/partition-replicas", 404, 404),
    _get("C/brokers/1/tasks/remove-broker", 404, 404),
    _get("C/brokers/1/tasks/add-broker", 404, 404),
    _get("C/brokers/1/tasks/other", 400, 400),
    _get("C/broker-configs/log.retention.ms", 404, 404),
    _get("C/topics/none", 404, 40403),
    _get("C/topics/none/configs", 404, 40403),
    _get("C/topics/none/default-configs", 404, 40403),
    _get("C/topics/none/partitions", 404, 40403),
    _get("C/topics/none/partitions/0", 404, 40403),
    _get("C/topics/none/partitions/0/offset", 404, 40403),
    _get("C/topics/none/partitions/0/reassignment", 404, 40403),
    _get("C/topics/none/partitions/-/replica-status", 404, 40403),
    _get("C/topics/t/configs/none", 404, 404),
    _get("C/topics/t/partitions/9", 404, 404),
    _get("C/topics/t/partitions/-1", 404, 404),
    _get("C/topics/t/partitions/x", 400, 400),
    _get("C/topics/t/partitions/9/offset", 404, 404),
    _get("C/topics/t/partitions/0/offset?offset_type=latest", 400, 400),
    _get("C/topics/t/partitions/0/replicas/9", 404, 404),
    _get("C/topics/t/partitions/0/reassignment", 404, 404),
    _get("C/consumer-groups/none", 404, 404),
    _get("C/consumer-groups/none/consumers", 404, 404),
    _get("C/consumer-groups/none/lags", 404, 404),
    _get("C/consumer-groups/none/lag-summary", 404, 404),
    _get("C/acls", 400, 40002),
)
CHANGES: Final = (
    _create(400, 40002, topic_name="t"),
    _create(400, 40002, topic_name="n", replication_factor=9),
    _create(400, 40002, topic_name="n", partitions_count=0),
    _create(400, 40002, topic_name="n", partitions_count=-2),
    _create(400, 40002, topic_name="n", replicas_assignments={"1": [1]}),
    _create(400, 40002, topic_name="n", replicas_assignments={"x": [1]}),
    _create(400, 40002, topic_name="n", replicas_assignments={"0": [1, 1]}),
    _create(
        400,
        40002,
        topic_name="n",
        replicas_assignments=[{"partition_id": 0, "broker_ids": [1]}] * 2,
    ),
    _create(400, 40002, topic_name="n", configs=[{"name": "none", "value": "1"}]),
    _create(400, 40002, topic_name="n", configs=[{"name": "retention.ms", "value": "x"}]),
    _create(400, 40002, topic_name="n", configs=[{"name": "retention.ms"}]),
    _create(400, 40002, topic_name="n", configs=[{"name": "retention.ms", "value": "1"}] * 2),
    _create(422, 42206, topic_name="-"),
    _create(422, 42206, topic_name=".."),
    _create(422, 42206, topic_name="a b"),
    _create(422, 42206, topic_name="x" * 250),
    _create(422, 422, topic_name="n", colour="red"),
    _create(400, 400, partitions_count=1),
    _create(400, 400, topic_name=5),
    _create(400, 400, topic_name="n", partitions_count="1"),
    _create(400, 400, topic_name="n", partitions_count=1.5),
    _create(400, 400, topic_name="n", partitions_count=2**31),
    _create(400, 400, topic_name="n", validate_only="yes"),
    _send("POST", "C/topics", 400, 400, b"{"),
    _send("POST", "C/topics", 400, 400, b"[]"),
    _send("POST", "C/topics", 400, 400, b'{"topic_name": "\xff"}'),
    Refusal("POST", "C/topics", 422, 42206, headers=JSON),
    Refusal("POST", "C/topics", 422, 42206),
    Refusal("POST", "C/topics", 415, 415, b"{}", {"content-type": "text/plain"}),
    Refusal("POST", "C/topics", 415, 415, b"{}"),
    Refusal("POST", "C/topics", 400, 400, b"{}", {"content-type": "application/json;charset=x"}),
    Refusal("PUT", "C/topics", 405, 405),
    Refusal("POST", "C/brokers/1", 405, 405),
    Refusal("DELETE", "C/topics/none", 404, 40403),
    _send("PATCH", "C/topics/t", 400, 40002, {"partitions_count": 1}),
    _send("PATCH", "C/topics/t", 400, 40002, {"partitions_count": 0}),
    _send("PATCH", "C/topics/t", 400, 40002, {"partitions_count": 200_001}),
    _send("PATCH", "C/topics/t", 400, 400, {}),
    _send("PATCH", "C/topics/none", 404, 40403, {"partitions_count": 2}),
    _send("PUT", "C/topics/t/configs/retention.ms", 400, 40002, {}),
    _send("PUT", "C/topics/t/configs/retention.ms", 400, 40002, {"value": None}),
    _send("PUT", "C/topics/t/configs/retention.ms", 400, 40002, {"value": "x"}),
    _send("PUT", "C/topics/t/configs/retention.ms", 400, 400, {"value": 5}),
    _send("PUT", "C/topics/t/configs/none", 404, 404, {"value": "5"}),
    _send("PUT", "C/topics/none/configs/retention.ms", 404, 40403, {"value": "5"}),
    Refusal("DELETE", "C/topics/t/configs/none", 404, 404),
    _send("PUT", "C/brokers/1/configs/none", 404, 404, {"value": "5"}),
    _send("PUT", "C/brokers/1/configs/broker.id", 400, 40002, {"value": "5"}),
    _send("PUT", "C/broker-configs/none", 400, 40002, {"value": "5"}),
    _send("POST", "C/topics/t/configs:alter", 400, 400, {}),
    _send(
        "POST", "C/topics/t/configs:alter", 400, 400, {"data": [{"name": "a", "operation": "ADD"}]}
    ),
    _send("POST", "C/topics/t/configs:alter", 400, 40002, {"data": [{"name": "retention.ms"}]}),
    _send(
        "POST",
        "C/topics/t/configs:alter",
        400,
        40002,
        {"data": [{"name": "retention.ms", "value": "1"}] * 2},
    ),
    _send("POST", "C/topics/-/configs:alter", 400, 400, {"data": []}),
    Refusal("DELETE", "C/brokers/9", 404, 404),
    Refusal("DELETE", "C/brokers/1", 400, 40002),
    _send("POST", "C/brokers:delete", 400, 400, {"broker_ids": []}),
    _send("POST", "C/brokers:delete", 400, 40002, {"broker_ids": [1, 1]}),
    _send("POST", "C/brokers:delete", 404, 404, {"broker_ids": [9]}),
    Refusal("POST", "C/brokers/9:unregister", 404, 404),
    Refusal("POST", "C/brokers/1:unregister", 400, 40002),
)
RECORDS: Final = (
    _produce(404, 40403, {}, "C/topics/none/records"),
    _produce(404, 404, {}, "/clusters/another/topics/t/records"),
    _produce(422, 42206, b""),
    _produce(422, 42206, b" \r\n"),
    _produce(400, 400, b"[]"),
    _produce(400, 400, b'{"value":'),
    _produce(400, 400, b'{"value" 1}'),
    _produce(400, 400, b'{"value": {"type": "STRING", "data": "\\ud800"}}'),
    _produce(400, 400, b'{"value": {"type": "STRING", "data": "\xff"}}'),
    _produce(
        400, 400, b'{"value": {"type": "JSON", "data": ' + b"[" * 5_000 + b"]" * 5_000 + b"}}"
    ),
    _produce(400, 400, {"colour": 1}),
    _produce(400, 400, {"value": "text"}),
    _produce(400, 400, {"partition_id": "0"}),
    _produce(400, 400, {"partition_id": 2**31}),
    _produce(404, 40402, {"partition_id": -1}),
    _produce(404, 40402, {"partition_id": 9}),
    _produce(400, 400, {"timestamp": "yesterday"}),
    _produce(400, 400, {"timestamp": "2021-02-05T19:14:42"}),
    _produce(400, 400, {"timestamp": "1969-02-05T19:14:42Z"}),
    _produce(400, 400, {"timestamp": 1}),
    _produce(400, 400, {"headers": [{"value": "AQ=="}]}),
    _produce(400, 400, {"headers": [{"name": "h", "value": "!"}]}),
    _produce(400, 400, {"headers": [{"name": "h"}] * 1_001}),
    _produce(400, 400, {"value": {"type": "BINARY", "data": "!!"}}),
    _produce(400, 400, {"value": {"type": "BINARY", "data": 5}}),
    _produce(400, 400, {"value": {"type": "STRING", "data": 5}}),
    _produce(400, 400, {"value": {**_DATA, "schema_id": 1}}),
    _produce(400, 400, {"value": {"subject": "s", "subject_name_strategy": "TOPIC_NAME"}}),
    _produce(400, 400, {"value": {"schema_id": 1, "schema_version": 1}}),
    _produce(422, 42206, {"value": {"type": "AVRO", "data": "x"}}),
    _produce(422, 42206, {"value": {"type": "PROTOBUF", "schema_id": 1, "data": "x"}}),
    _produce(422, 42206, {"key": {"data": "x"}}),
    _produce(413, 413, {"value": {"type": "STRING", "data": "x" * 2_000_000}}),
    Refusal("POST", "C/topics/t/records", 415, 415, b"{}", {"content-type": "text/plain"}),
    Refusal(
        "POST",
        "C/topics/t/records",
        400,
        400,
        b"{}",
        {"content-type": "application/json; charset=utf-16"},
    ),
    Refusal("GET", "C/topics/t/records", 405, 405),
    _batch(422, 42208, b""),
    _batch(422, 42208, b"null"),
    _batch(422, 42208, {}),
    _batch(422, 42208, {"entries": []}),
    _batch(422, 42208, {"entries": [{"id": str(number)} for number in range(11)]}),
    _batch(422, 42208, {"entries": [{"id": "1"}, {"id": "1"}]}),
    _batch(422, 42208, {"entries": [{"id": ""}]}),
    _batch(422, 42208, {"entries": [{"id": "x" * 81}]}),
    _batch(422, 42208, {"entries": [{}]}),
    _batch(422, 42208, {"entries": [5]}),
    _batch(400, 400, {"entries": 5}),
    _batch(422, 422, {"entries": [], "colour": 1}),
    _batch(400, 400, b"{"),
)
REFUSALS: Final = (*READS, *CHANGES, *RECORDS)
