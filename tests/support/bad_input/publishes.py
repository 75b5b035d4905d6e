"""Bad requests that stage and publish, as rows of the table in `bad_requests`."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from leadline_common.staged_copies import DROP_STAGED_PATH, KEEP_STAGED_PATH, READ_STAGED_PATH
from tests.support.bad_input.batches import BOMBS, RECORDS
from tests.support.bad_input.table import JSON, MSGPACK, OCTETS, TEXT, Bad, bad_json

STAGED: Final = "/v1/topics/t/partitions/0/staged"
PUBLISH: Final = "/v1/topics/t/partitions/0/publish"
HOSTILE_COUNT: Final = next(one for one in RECORDS if one.name == "a count of 2^31 - 1")
GOOD: Final = {"app": "a", "batch": 0, "staged": ["no-such-upload"]}


def staged(name: str, code: int, content: bytes, path: str = STAGED, says: str = "") -> Bad:
    """Return an upload of octets."""
    return Bad(name, "POST", path, code, content, OCTETS, says)


def publish(name: str, code: int, says: str = "", **changed: object) -> Bad:
    """Return a publish that differs from a good one, but that nothing is staged."""
    return bad_json(name, PUBLISH, code, GOOD | changed, says)


def publishes(batch: bytes, large: bytes, request_max_bytes: int) -> list[Bad]:
    """Return what is sent to the leader; `batch` is a good one, `large` is over the limit."""
    return [
        Bad("staged text", "POST", STAGED, 41550, b"{}", TEXT, says="octet-stream"),
        Bad("staged JSON without records", "POST", STAGED, 40050, b"{}", JSON, says="records"),
        staged("staged garbage", 40051, b"\x00" * 200),
        staged("staged nothing", 40051, b""),
        staged("staged a torn batch", 40051, batch[:-1]),
        *(staged(f"staged, {one}", one.code, one.data, says=one.says) for one in BOMBS),
        staged(
            "staged, lying count", HOSTILE_COUNT.code, HOSTILE_COUNT.data, says=HOSTILE_COUNT.says
        ),
        staged("staged in an unknown topic", 40403, batch, "/v1/topics/none/partitions/0/staged"),
        staged("staged in no partition", 40402, batch, "/v1/topics/t/partitions/9/staged"),
        staged("staged, unknown parameter", 40050, batch, STAGED + "?acks=all", says="acks"),
        staged("staged, old epoch", 40951, batch, STAGED + "?leader_epoch=0", says='"leader"'),
        staged("staged, future epoch", 40952, batch, STAGED + "?leader_epoch=99", says='"leader"'),
        staged("staged, body too large", 41350, b"x" * (request_max_bytes + 1)),
        staged("staged, batch too large", 41350, large),
        Bad("deletion of nothing staged", "DELETE", STAGED + "/x", 40452, says='"staged"'),
        bad_json("malformed publish", PUBLISH, 40050, "{", says="body"),
        publish("publish of nothing staged", 40452, says="no-such-upload"),
        publish("publish of an empty list", 40050, staged=[], says="staged"),
        publish("publish of one upload twice", 40050, staged=["x", "x"], says="staged"),
        publish("publish by nobody", 40050, app="", says="app"),
        publish("publish of a negative batch", 40050, batch=-1, says="batch"),
        publish("publish beyond the last batch", 40050, batch=2**31, says="batch"),
        publish("publish, batch of a wrong type", 40050, batch="1", says="batch"),
        publish("publish, unknown member", 40050, acks="1", says="acks"),
        publish("publish, endless wait", 40050, timeout_ms=10**9, says="timeout_ms"),
        bad_json(
            "publish in an unknown topic", "/v1/topics/none/partitions/0/publish", 40403, GOOD
        ),
        bad_json("publish in no partition", "/v1/topics/t/partitions/9/publish", 40402, GOOD),
        Bad("publish, wrong content type", "POST", PUBLISH, 41550, b"{}", TEXT),
    ]


def copy(name: str, path: str, code: int, says: str = "", **changed: object) -> Bad:
    """Return what no leader says to broker 2 in its first incarnation about what is staged."""
    said: dict[str, object] = {
        "broker_id": 2,
        "incarnation": 1,
        "leader": 1,
        "leader_epoch": 1,
        "topic_id": "f" * 32,
        "partition": 0,
    }
    content = msgspec.msgpack.encode(said | changed)
    return Bad(name, "POST", path, code, content, MSGPACK, says)


_KEPT: Final[dict[str, Any]] = {"staged_id": "a" * 32, "records": b"x"}
COPIES: Final = [
    Bad("malformed copy", "POST", KEEP_STAGED_PATH, 40050, b"\xc1", MSGPACK),
    Bad("copy, wrong content type", "POST", KEEP_STAGED_PATH, 41550, b"{}", JSON),
    copy("copy of nothing", KEEP_STAGED_PATH, 40050, says="staged_id"),
    copy("copy to a path", KEEP_STAGED_PATH, 40050, "staged_id", **_KEPT | {"staged_id": "../x"}),
    copy("copy for another broker", KEEP_STAGED_PATH, 40050, **_KEPT, broker_id=1),
    copy("copy for an old incarnation", KEEP_STAGED_PATH, 40954, **_KEPT, incarnation=0),
    copy("copy for no replica", KEEP_STAGED_PATH, 40402, **_KEPT),
    copy("drop of a list that is none", DROP_STAGED_PATH, 40050, "staged_ids", staged_ids="a"),
    copy("drop for another broker", DROP_STAGED_PATH, 40050, staged_ids=["a"], broker_id=1),
    copy("drop for an old incarnation", DROP_STAGED_PATH, 40954, staged_ids=["a"], incarnation=0),
    copy("drop for no replica", DROP_STAGED_PATH, 40402, staged_ids=["a"]),
    copy("reading nothing", READ_STAGED_PATH, 40050, says="staged_id"),
    copy("reading at another broker", READ_STAGED_PATH, 40050, staged_id="a", broker_id=1),
    copy("reading at an old incarnation", READ_STAGED_PATH, 40954, staged_id="a", incarnation=0),
    copy("reading of no replica", READ_STAGED_PATH, 40402, staged_id="a"),
]
"""What broker 2 refuses of what is said among replicas."""
