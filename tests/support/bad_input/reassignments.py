"""Reassignments and tasks that must be refused; see `bad_input`."""

from __future__ import annotations

import json
from typing import Any

from tests.support.bad_input.table import JSON, Bad, bad_json

PATH = "/v1/reassignments"
TASK = "/v1/tasks/0000000007"
REFUSED, MALFORMED = 40002, 40050
ROW = {"topic": "t", "partition": 0, "replicas": [2, 3, 1]}


def row(name: str, code: int, says: str, **changes: Any) -> Bad:
    """Return a request for one partition, well-formed but for `changes`."""
    return bad_json(name, PATH, code, {"partitions": [ROW | changes]}, says)


def throttle(name: str, code: int, body: Any, says: str) -> Bad:
    """Return a change of a task."""
    return Bad(name, "PATCH", TASK, code, json.dumps(body).encode(), JSON, says)


REASSIGNMENTS = [
    bad_json("malformed reassignment", PATH, MALFORMED, "move!"),
    bad_json("reassignment of nothing", PATH, MALFORMED, {"partitions": []}, "partitions"),
    bad_json("other version", PATH, MALFORMED, {"version": 2, "partitions": [ROW]}, "version"),
    bad_json("partition named twice", PATH, MALFORMED, {"partitions": [ROW, ROW]}, "listed twice"),
    bad_json(
        "unknown algorithm", PATH, MALFORMED, {"partitions": [ROW], "algorithm": "quick"}, "algor"
    ),
    bad_json(
        "throttle of nothing",
        PATH,
        MALFORMED,
        {"partitions": [ROW], "throttle_bytes_per_s": 0},
        "throttle",
    ),
    bad_json(
        "fewer replicas, not allowed",
        PATH,
        REFUSED,
        {"partitions": [ROW | {"replicas": [1]}], "allow_replication_factor_change": False},
        "1 replicas instead of 3",
    ),
    row("reassign an unknown topic", 40403, "none", topic="none"),
    row("reassign an unknown partition", 40402, "no partition 9", partition=9),
    row("reassign to nobody", REFUSED, "empty", replicas=[]),
    row("reassign to a broker twice", REFUSED, "twice", replicas=[1, 1, 2]),
    row("reassign to an unknown broker", REFUSED, "[9] never registered", replicas=[1, 2, 9]),
    row("replicas of a wrong type", MALFORMED, "replicas", replicas=["1"]),
    row("reassignment with an unknown member", MALFORMED, "colour", colour="red"),
    Bad("cancel what is at rest", "DELETE", f"{PATH}/t/0", 404, says="not being reassigned"),
    Bad("cancel a partition without a number", "DELETE", f"{PATH}/t/first", MALFORMED),
    Bad("unknown task", "GET", TASK, 404, says="0000000007"),
    Bad("cancel an unknown task", "DELETE", TASK, 404, says="0000000007"),
    throttle("throttle an unknown task", 404, {"throttle_bytes_per_s": 1}, "0000000007"),
    throttle("throttle without a rate", MALFORMED, {}, "throttle_bytes_per_s"),
    throttle("negative throttle", MALFORMED, {"throttle_bytes_per_s": -1}, "throttle_bytes_per_s"),
]
