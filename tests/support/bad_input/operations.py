"""Growing and shrinking topics, and taking brokers out of service, wrongly; see `bad_input`.

The cluster has three brokers, and topic `t` one partition with three replicas.
"""

from __future__ import annotations

import json
from typing import Any

from tests.support.bad_input.table import JSON, Bad, bad_json

PARTITIONS = "/v1/topics/t/partitions"
DRAIN = "/v1/brokers/1/drain"
REFUSED, MALFORMED, NOT_FOUND = 40002, 40050, 404


def add(name: str, code: int, says: str = "", path: str = PARTITIONS, **body: Any) -> Bad:
    """Return a request to add partitions."""
    return bad_json(name, path, code, body, says)


def remove(name: str, code: int, says: str = "", path: str = PARTITIONS, **body: Any) -> Bad:
    """Return a request to remove partitions."""
    return Bad(name, "DELETE", path, code, json.dumps(body).encode(), JSON, says)


OPERATIONS = [
    add("as many partitions as there are", REFUSED, "already has 1 partitions", partitions=1),
    add("no partitions", MALFORMED, "partitions", partitions=0),
    add("partitions without a total", MALFORMED, "partitions"),
    add("total of a wrong type", MALFORMED, "partitions", partitions="3"),
    add("more partitions with an unknown member", MALFORMED, "colour", partitions=2, colour="red"),
    add("unknown topic grows", 40403, "none", path="/v1/topics/none/partitions", partitions=2),
    add(
        "not exactly the new partitions",
        MALFORMED,
        "list exactly",
        partitions=2,
        replica_assignment={"2": [1, 2, 3]},
    ),
    add(
        "another number of replicas",
        REFUSED,
        "2 replicas",
        partitions=2,
        replica_assignment={"1": [1, 2]},
    ),
    add(
        "new partition on an unknown broker",
        REFUSED,
        "[9] never registered",
        partitions=2,
        replica_assignment={"1": [1, 2, 9]},
    ),
    add(
        "new partition twice on a broker",
        REFUSED,
        "twice",
        partitions=2,
        replica_assignment={"1": [1, 1, 2]},
    ),
    remove("the last partition", REFUSED, "the last partition", partitions=[0]),
    remove("an unknown partition goes", 40402, "no partitions [7]", partitions=[7]),
    remove("no partition goes", MALFORMED, "partitions", partitions=[]),
    remove("a negative partition goes", MALFORMED, "partitions", partitions=[-1]),
    remove("removal without partitions", MALFORMED, "partitions"),
    remove("removal of a wrong type", MALFORMED, "partitions", partitions="all"),
    remove(
        "removal from an unknown topic", 40403, "none", "/v1/topics/none/partitions", partitions=[0]
    ),
    remove(
        "removal waits too long", MALFORMED, "wait_ms", PARTITIONS + "?wait_ms=-1", partitions=[0]
    ),
    Bad("may an unknown broker stop", "GET", "/v1/brokers/9/can-stop", NOT_FOUND, says="9"),
    Bad("may a broker without a number stop", "GET", "/v1/brokers/x/can-stop", MALFORMED),
    bad_json("drain an unknown broker", "/v1/brokers/9/drain", NOT_FOUND, {}, "9 is not live"),
    bad_json("drain at no rate", DRAIN, MALFORMED, {"throttle_bytes_per_s": 0}, "throttle"),
    bad_json("drain with an unknown member", DRAIN, MALFORMED, {"colour": "red"}, "colour"),
    bad_json("malformed drain", DRAIN, MALFORMED, "drain!"),
    bad_json("nobody could take the replicas", DRAIN, REFUSED, {"dry_run": True}, "replicas"),
]
