"""Changes of settings that must be refused; see `bad_input`."""

from __future__ import annotations

import json
from typing import Any

from tests.support.bad_input.table import JSON, Bad

CLUSTER = "/v1/configs"
BROKER = "/v1/brokers/1/configs"
TOPIC = "/v1/topics/t/configs"
REFUSED = 40002
MALFORMED = 40050
LIMIT = "reassignment.max.concurrent.replica.movements"
ALIAS = "reassignment.parallel.replica.count"


def change(name: str, path: str, code: int, body: Any, says: str) -> Bad:
    """Return a PATCH of a JSON document."""
    return Bad(name, "PATCH", path, code, json.dumps(body).encode(), JSON, says)


def setting(name: str, path: str, pair: tuple[str, Any], says: str) -> Bad:
    """Return a request to set one setting, which is well formed."""
    return change(name, path, REFUSED, {"set": dict([pair])}, says)


CONFIGS = [
    setting("unknown setting", CLUSTER, ("num.partitons", 2), "did you mean num.partitions?"),
    setting("setting too small", CLUSTER, ("num.partitions", 0), "greater than or equal to 1"),
    setting("setting too large", CLUSTER, ("retention.ms", 2**63), "log.retention.ms"),
    setting("setting of a wrong type", CLUSTER, ("num.partitions", "two"), "num.partitions: "),
    setting("boolean for a number", CLUSTER, ("num.partitions", True), "num.partitions: "),
    setting("read-only setting", CLUSTER, ("log.dir", "/"), "log.dir is read-only"),
    setting("broker's setting for all", CLUSTER, ("open.files.max", 99), "set it for one broker"),
    setting("topic's name for all", CLUSTER, ("retention.ms", 99), "it is log.retention.ms"),
    change("unknown to remove", CLUSTER, REFUSED, {"remove": ["never.heard.of"]}, "unknown"),
    change(
        "set and removed",
        CLUSTER,
        REFUSED,
        {"set": {"num.partitions": 2}, "remove": ["num.partitions"]},
        "both set and removed",
    ),
    change("set by two names", CLUSTER, REFUSED, {"set": {ALIAS: 1, LIMIT: 1}}, "given twice"),
    change("one of two is bad", CLUSTER, REFUSED, {"set": {LIMIT: 1, "num.partitions": 0}}, "num."),
    change(
        "null", CLUSTER, MALFORMED, {"set": {"num.partitions": None}}, "body.set.num.partitions"
    ),
    change("unknown member", CLUSTER, MALFORMED, {"sets": {}}, "body.sets"),
    setting("cluster's for a broker", BROKER, ("min.insync.replicas", 1), "for the cluster"),
    setting("controller's for a broker", BROKER, ("num.partitions", 1), "for the cluster"),
    setting("broker's name for a topic", TOPIC, ("log.retention.ms", 1), "own is retention.ms"),
    change(
        "no such broker",
        "/v1/brokers/77/configs",
        404,
        {"set": {"log.retention.ms": 1}},
        "no broker 77 is known",
    ),
    change(
        "no such topic", "/v1/topics/none/configs", 40403, {"set": {"retention.ms": 1}}, "'none'"
    ),
    Bad("settings of no broker", "GET", "/v1/brokers/77/configs", 404, says="no broker 77"),
    Bad("settings of no topic", "GET", "/v1/topics/none/configs", 40403, says="'none'"),
]
