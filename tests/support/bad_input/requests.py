"""The table of bad requests: to what, with what, and the code that each must be answered with.

They are meant for a cluster whose topic `t` has one partition, led by broker 2 in
an epoch above 0, with two records of the idempotent producer `PRODUCER_ID`, epoch 1.
"""

from __future__ import annotations

import struct

import msgspec

from leadline_client import batches
from leadline_client.payloads import OutgoingRecord
from leadline_common import rpc
from tests.support.bad_input.batches import HOSTILE
from tests.support.bad_input.configs import CONFIGS
from tests.support.bad_input.exports import EXPORTS
from tests.support.bad_input.history import QUESTIONS
from tests.support.bad_input.operations import OPERATIONS
from tests.support.bad_input.parameters import OF_ADMINISTRATION, OF_BROKERS
from tests.support.bad_input.plans import PLANS
from tests.support.bad_input.publishes import COPIES, PUBLISH, STAGED, publishes, staged
from tests.support.bad_input.publishes import GOOD as GOOD_PUBLISH
from tests.support.bad_input.reassignments import REASSIGNMENTS
from tests.support.bad_input.table import JSON, MSGPACK, OCTETS, TEXT, Bad, bad_json

MESSAGE_MAX_BYTES = 64 * 1024
REQUEST_MAX_BYTES = 256 * 1024
PRODUCER_ID = 7001
RECORDS = "/v1/topics/t/partitions/0/records"
OFFSETS = "/v1/topics/t/partitions/0/offsets"
EPOCHS = "/v1/topics/t/partitions/0/epochs"


def batch(
    value: bytes = b"v", *, epoch: int = 1, sequence: int = 0, numbered: bool = False
) -> bytes:
    """Return a batch of two records; `numbered` ones are the idempotent producer's."""
    return batches.encode(
        [OutgoingRecord(value), OutgoingRecord(value)],
        now_ms=1_790_000_000_000,
        producer_id=PRODUCER_ID if numbered else batches.NO_PRODUCER_ID,
        producer_epoch=epoch if numbered else -1,
        base_sequence=sequence if numbered else batches.NO_SEQUENCE,
    )


def with_byte(data: bytes, position: int, value: int) -> bytes:
    """Return a copy with one byte replaced."""
    changed = bytearray(data)
    changed[position] = value
    return bytes(changed)


def raw(name: str, code: int, content: bytes, query: str = "", says: str = "") -> Bad:
    """Return a produce of octets."""
    return Bad(name, "POST", RECORDS + query, code, content, OCTETS, says)


def get(name: str, path: str, code: int, says: str = "") -> Bad:
    """Return a GET."""
    return Bad(name, "GET", path, code, says=says)


ONE = {"records": [{"value": "v"}]}
GOOD = batch()
LAST_OFFSET_DELTA = 23
DIGITS = "9" * 5_000
HUGE = {"-2^63": str(-(2**63)), "2^63": str(2**63), "2^64": str(2**64), "5,000 digits": DIGITS}

PRODUCE = [
    bad_json("malformed JSON", RECORDS, 40050, '{"records": [', says="body"),
    bad_json("not an object", RECORDS, 40050, [], says="body"),
    bad_json("no records", RECORDS, 40050, {"records": []}, says="records"),
    bad_json("records of a wrong type", RECORDS, 40050, {"records": "x"}, says="records"),
    bad_json("missing member", RECORDS, 40050, {"format": "string"}, says="records"),
    bad_json("value of a wrong type", RECORDS, 40050, {"records": [{"value": 5}]}, says="value"),
    bad_json("unknown member", RECORDS, 40050, ONE | {"colour": 1}, says="colour"),
    bad_json("unknown format", RECORDS, 40050, ONE | {"format": "xml"}, says="format"),
    bad_json(
        "not base64", RECORDS, 40050, {"records": [{"value": "?"}], "format": "base64"}, "value"
    ),
    bad_json(
        "base64 beyond ASCII",
        RECORDS,
        40050,
        {"records": [{"value": "é"}], "format": "base64"},
        "value",
    ),
    bad_json(
        "timestamp beyond 64 bits",
        RECORDS,
        40050,
        {"records": [{"value": "v", "timestamp": 2**70}]},
        says="timestamp",
    ),
    bad_json(
        "producer id beyond 64 bits",
        RECORDS,
        40050,
        ONE | {"producer": {"id": 2**64, "epoch": 0, "sequence": 0}},
        says="producer",
    ),
    bad_json(
        "producer epoch beyond 16 bits",
        RECORDS,
        40050,
        ONE | {"producer": {"id": 7002, "epoch": 2**16, "sequence": 0}},
        says="producer",
    ),
    Bad("wrong content type", "POST", RECORDS, 41550, b"v", TEXT, says="text/plain"),
    bad_json("unknown acks", RECORDS + "?acks=2", 40050, ONE, says="acks"),
    bad_json("negative timeout", RECORDS + "?timeout_ms=-1", 40050, ONE, says="timeout_ms"),
    bad_json("timeout of a wrong type", RECORDS + "?timeout_ms=soon", 40050, ONE, "timeout_ms"),
    bad_json("unknown parameter", RECORDS + "?colour=1", 40050, ONE, says="colour"),
    bad_json("unknown topic", "/v1/topics/none/partitions/0/records", 40403, ONE),
    bad_json("unknown partition", "/v1/topics/t/partitions/9/records", 40402, ONE),
    bad_json("negative partition", "/v1/topics/t/partitions/-1/records", 40050, ONE, "partition"),
    bad_json("partition of a wrong type", "/v1/topics/t/partitions/x/records", 40050, ONE),
    bad_json("huge partition", f"/v1/topics/t/partitions/{2**80}/records", 40402, ONE),
    bad_json("stale leader epoch", RECORDS + "?leader_epoch=0", 40951, ONE, says='"leader"'),
    bad_json("future leader epoch", RECORDS + "?leader_epoch=99", 40952, ONE, says='"leader"'),
    raw("empty body", 40051, b""),
    raw("garbage", 40051, b"\x00" * 200),
    raw("shorter than a header", 40051, GOOD[:40]),
    raw("torn batch", 40051, GOOD[:-1]),
    raw("flipped byte in a record", 40051, with_byte(GOOD, len(GOOD) - 2, 0xFF)),
    raw("old batch format", 40051, with_byte(GOOD, 16, 1)),
    raw("records not consecutive", 40051, with_byte(GOOD, LAST_OFFSET_DELTA + 3, 9)),
    raw("one good batch, one torn", 40051, GOOD + GOOD[:30]),
    raw("negative length", 40051, struct.pack(">qi", 0, -1) + GOOD[12:]),
    raw("batch over message.max.bytes", 41350, batch(b"x" * MESSAGE_MAX_BYTES)),
    raw("body over request.max.bytes", 41350, batch(b"x" * REQUEST_MAX_BYTES)),
    bad_json(
        "JSON over message.max.bytes",
        RECORDS,
        41350,
        {"records": [{"value": "x" * (MESSAGE_MAX_BYTES + 1)}]},
    ),
    *(raw(str(one), one.code, one.data, says=one.says) for one in HOSTILE),
    bad_json(
        "too many headers",
        RECORDS,
        40050,
        {"records": [{"value": "v", "headers": [{"name": ""}] * 1_001}]},
        says="headers",
    ),
    bad_json(
        "a number of 5,000 digits",
        RECORDS,
        40050,
        f'{{"format": "json", "records": [{{"value": {DIGITS}}}]}}',
        says="value",
    ),
    bad_json(
        "a timestamp of 5,000 digits",
        RECORDS,
        40050,
        f'{{"records": [{{"value": "v", "timestamp": {DIGITS}}}]}}',
        says="timestamp",
    ),
    bad_json("negative timestamp", RECORDS, 40050, {"records": [{"value": "v", "timestamp": -1}]}),
    Bad("JSON, not UTF-8", "POST", RECORDS, 40050, b'{"records": [{"value": "\xff"}]}', JSON),
    bad_json("deep JSON", RECORDS, 40050, '{"records": ' + "[" * 5_000, says="body"),
    *(
        bad_json(f"timeout_ms of {name}", RECORDS + f"?timeout_ms={number}", 40050, ONE, "timeout")
        for name, number in HUGE.items()
    ),
    *(
        bad_json(
            f"leader_epoch of {name}", RECORDS + f"?leader_epoch={number}", 40050, ONE, "epoch"
        )
        for name, number in HUGE.items()
    ),
    bad_json("partition of 5,000 digits", f"/v1/topics/t/partitions/{DIGITS}/records", 40050, ONE),
    raw("sequence skipped", 40956, batch(sequence=50, numbered=True)),
    raw("fenced producer", 40957, batch(epoch=0, sequence=2, numbered=True)),
    bad_json(
        "producer id of an application that publishes",
        RECORDS,
        40050,
        ONE | {"producer": {"id": 2**62, "epoch": 0, "sequence": 0}},
        says="producer",
    ),
]

FETCH = [
    get("no offset", RECORDS, 40050, says="offset"),
    get("negative offset", RECORDS + "?offset=-1", 40050, says="offset"),
    get("offset of a wrong type", RECORDS + "?offset=first", 40050, says="offset"),
    get("offset beyond 64 bits", RECORDS + f"?offset={2**63}", 40050, says="offset"),
    get("offset beyond the end", RECORDS + "?offset=1000", 41650, says='"high_watermark"'),
    get("max_bytes of 0", RECORDS + "?offset=0&max_bytes=0", 40050, says="max_bytes"),
    get("wait too long", RECORDS + "?offset=0&wait_ms=999999999", 40050, says="wait_ms"),
    *(
        get(f"{field} of {name}", RECORDS + f"?offset=0&{field}={number}", 40050, says=field)
        for field in ("max_bytes", "min_bytes", "wait_ms", "max_records", "last_epoch")
        for name, number in HUGE.items()
    ),
    get("unknown format", RECORDS + "?offset=0&format=xml", 40050, says="format"),
    get("unknown parameter", RECORDS + "?offset=0&group=g", 40050, says="group"),
    get("unknown topic", "/v1/topics/none/partitions/0/records?offset=0", 40403),
    get("unknown partition", "/v1/topics/t/partitions/9/records?offset=0", 40402),
    get("partition of a wrong type", "/v1/topics/t/partitions/x/records?offset=0", 40050),
    get("stale leader epoch", RECORDS + "?offset=0&leader_epoch=0", 40951, says='"leader"'),
    get("future leader epoch", RECORDS + "?offset=0&leader_epoch=99", 40952, says='"leader"'),
]

OTHERS = [
    get("offsets of an unknown topic", "/v1/topics/none/partitions/0/offsets", 40403),
    get("offsets of an unknown partition", "/v1/topics/t/partitions/9/offsets", 40402),
    get("offsets of no partition", "/v1/topics/t/partitions/x/offsets", 40050, says="partition"),
    *(
        get(f"offsets at {name}", OFFSETS + f"?timestamp={number}", 40050, says="timestamp")
        for name, number in HUGE.items()
    ),
    *(get(f"epoch of {name}", f"{EPOCHS}/{number}", 40050) for name, number in HUGE.items()),
    *(
        bad_json(
            f"bulk offsets at {name}",
            "/v1/offsets",
            40050,
            f'{{"topics": ["t"], "timestamp": {number}}}',
            says="timestamp",
        )
        for name, number in HUGE.items()
    ),
    get("timestamp of a wrong type", OFFSETS + "?timestamp=noon", 40050, says="timestamp"),
    bad_json("malformed bulk offsets", "/v1/offsets", 40050, "{", says="body"),
    Bad("bulk offsets, not UTF-8", "POST", "/v1/offsets", 40050, b'{"topics": ["\xff"]}', JSON),
    bad_json("bulk offsets of nothing", "/v1/offsets", 40050, {}),
    bad_json("bulk offsets, unknown member", "/v1/offsets", 40050, {"topic": "t"}, says="topic"),
    bad_json("bulk offsets, wrong type", "/v1/offsets", 40050, {"topics": "t"}, says="topics"),
    Bad("bulk offsets, wrong content type", "POST", "/v1/offsets", 41550, b"{}", TEXT),
    bad_json(
        "bulk offsets, endless wait",
        "/v1/offsets",
        40050,
        {"topics": ["t"], "wait_ms": 10**6},
        says="wait_ms",
    ),
    bad_json(
        "bulk offsets after those of another",
        "/v1/offsets",
        40050,
        {"topics": ["t"], "after": {"u": {"0": 1}}},
        says="u-0",
    ),
    bad_json(
        "bulk offsets, unknown scope",
        "/v1/offsets",
        40050,
        {"topics": ["t"], "scope": "world"},
        says="scope",
    ),
    get("epoch to come", EPOCHS + "/99", 40952, says='"leader"'),
    get("epoch of no number", EPOCHS + "/first", 40050, says="epoch"),
    get("load, unknown parameter", "/v1/load?topic=t", 40050, says="topic"),
    get("metadata after no number", "/v1/metadata?after=now", 40050, says="after"),
    get(
        "metadata after an endless ETag",
        f"/v1/metadata?changed_after={'1' * 101}",
        40050,
        says="changed_after",
    ),
    get("metadata, endless wait", "/v1/metadata?after=1&wait=forever", 40050, says="wait"),
    get("unknown route", "/v1/nothing", 404),
    Bad("wrong method", "DELETE", "/v1/replicas", 405),
    *publishes(GOOD, batch(b"x" * MESSAGE_MAX_BYTES), REQUEST_MAX_BYTES),
]


NOT_LEADER = [
    raw("produce", 42150, GOOD, says='"leader"'),
    get("fetch", RECORDS + "?offset=0", 42150, says='"leader"'),
    get("offsets", OFFSETS, 42150, says='"leader"'),
    get("epoch end", EPOCHS + "/0", 42150, says='"leader"'),
    staged("stage", 42150, GOOD, says='"leader"'),
    bad_json("publish", PUBLISH, 42150, GOOD_PUBLISH, says='"leader"'),
    Bad("deletion of what is staged", "DELETE", STAGED + "/x", 42150, says='"leader"'),
]


def leader_and_isr(**changed: object) -> bytes:
    """Return a grant that broker 2 must not obey."""
    fields: dict[str, object] = {
        "controller_id": 1,
        "controller_epoch": 99,
        "broker_id": 2,
        "incarnation": 1,
        "is_init": True,
        "ack_timeout_ms": 1000,
        "cause": "test",
        "brokers": [],
        "topics": [],
    }
    return msgspec.json.encode({**fields, **changed})


def stop_replica(**changed: object) -> bytes:
    """Return an order to delete that broker 2 must not obey."""
    fields: dict[str, object] = {
        "controller_id": 1,
        "controller_epoch": 99,
        "broker_id": 2,
        "incarnation": 1,
        "ack_timeout_ms": 1000,
        "cause": "test",
        "delete": True,
        "topics": [],
    }
    return msgspec.json.encode({**fields, **changed})


def update_metadata(epoch: int) -> bytes:
    """Return metadata that broker 2 must not serve."""
    return msgspec.json.encode(
        rpc.UpdateMetadataRequest(
            "cluster", rpc.ControllerRow(1, "http://x", epoch), 2, 1, 10**9, 0, True, "test", [], []
        )
    )


def command(name: str, path: str, code: int, content: bytes) -> Bad:
    """Return a command as from a controller."""
    return Bad(name, "POST", path, code, content, JSON)


INTERNAL = [
    command("malformed grant", rpc.LEADER_AND_ISR_PATH, 40050, b"{"),
    command("grant, missing members", rpc.LEADER_AND_ISR_PATH, 40050, b"{}"),
    command(
        "grant, wrong type", rpc.LEADER_AND_ISR_PATH, 40050, leader_and_isr(controller_epoch="9")
    ),
    command(
        "grant of a stale controller",
        rpc.LEADER_AND_ISR_PATH,
        40953,
        leader_and_isr(controller_epoch=0),
    ),
    command(
        "grant for an old incarnation",
        rpc.LEADER_AND_ISR_PATH,
        40954,
        leader_and_isr(incarnation=0),
    ),
    command(
        "grant for another broker", rpc.LEADER_AND_ISR_PATH, 40050, leader_and_isr(broker_id=1)
    ),
    Bad("grant, wrong content type", "POST", rpc.LEADER_AND_ISR_PATH, 41550, b"{}", TEXT),
    command(
        "stop by a stale controller", rpc.STOP_REPLICA_PATH, 40953, stop_replica(controller_epoch=0)
    ),
    command(
        "stop for an old incarnation", rpc.STOP_REPLICA_PATH, 40954, stop_replica(incarnation=0)
    ),
    command("malformed stop", rpc.STOP_REPLICA_PATH, 40050, b"[]"),
    command("metadata of a stale controller", rpc.UPDATE_METADATA_PATH, 40953, update_metadata(0)),
    command("malformed metadata", rpc.UPDATE_METADATA_PATH, 40050, b'{"cluster_id": 5}'),
    Bad("malformed fetch", "POST", rpc.REPLICA_FETCH_PATH, 40050, b"\xc1", MSGPACK),
    Bad("fetch, wrong content type", "POST", rpc.REPLICA_FETCH_PATH, 41550, b"{}", JSON),
    *COPIES,
]

NEW = {"name": "new", "partitions": 1, "replication_factor": 1}
TOPICS = "/v1/topics"
ELECTIONS = "/v1/elections"
WHAT_IF = "/v1/what-if/election"
PLACEMENT = "/v1/what-if/placement"
STEPS = "/v1/what-if/reassignment"
QUESTION = {"kind": "offline", "assignment": [1, 2], "isr": [1, 2], "live": [2]}


def assigned(assignment: object) -> dict[str, object]:
    """Return a topic with an explicit assignment."""
    return {"name": "new", "replica_assignment": assignment}


ADMINISTRATION = [
    bad_json("malformed topic", TOPICS, 40050, "{", says="body"),
    bad_json("topic without a name", TOPICS, 40050, {"partitions": 1}, says="name"),
    bad_json("partitions of a wrong type", TOPICS, 40050, NEW | {"partitions": "6"}, "partitions"),
    bad_json("no partitions", TOPICS, 40050, NEW | {"partitions": 0}, says="partitions"),
    bad_json("fractional partitions", TOPICS, 40050, NEW | {"partitions": 1.5}, "partitions"),
    bad_json("no replicas", TOPICS, 40050, NEW | {"replication_factor": 0}, "replication_factor"),
    bad_json("unknown member", TOPICS, 40050, NEW | {"replicas": 3}, says="replicas"),
    bad_json("more replicas than brokers", TOPICS, 40002, NEW | {"replication_factor": 9}),
    bad_json("topic name with a slash", TOPICS, 40002, NEW | {"name": "a/b"}, says="a/b"),
    bad_json("topic name of two dots", TOPICS, 40002, NEW | {"name": ".."}),
    bad_json("topic name too long", TOPICS, 40002, NEW | {"name": "n" * 250}),
    bad_json("empty topic name", TOPICS, 40002, NEW | {"name": ""}),
    bad_json("topic that exists", TOPICS, 40002, NEW | {"name": "t"}),
    bad_json("unknown setting", TOPICS, 40002, NEW | {"configs": {"colour": "red"}}, "colour"),
    bad_json(
        "setting of a wrong type",
        TOPICS,
        40002,
        NEW | {"configs": {"retention.ms": "long"}},
        says="retention.ms",
    ),
    bad_json("duplicate replica", TOPICS, 40002, assigned({"0": [1, 1]})),
    bad_json("unknown broker", TOPICS, 40002, assigned({"0": [1, 77]}), says="77"),
    bad_json("assignment with a gap", TOPICS, 40002, assigned({"0": [1], "2": [2]})),
    bad_json("uneven assignment", TOPICS, 40002, assigned({"0": [1], "1": [1, 2]})),
    bad_json("empty assignment", TOPICS, 40002, assigned({})),
    bad_json("assignment to nobody", TOPICS, 40002, assigned({"0": []})),
    bad_json("partition of a wrong type", TOPICS, 40050, assigned({"zero": [1]}), "assignment"),
    bad_json("broker of a wrong type", TOPICS, 40050, assigned({"0": ["1"]}), "assignment"),
    bad_json(
        "counts against assignment", TOPICS, 40050, NEW | {"replica_assignment": {"0": [1, 2]}}
    ),
    Bad("topic, wrong content type", "POST", TOPICS, 41550, b"{}", TEXT),
    bad_json("oversize topic", TOPICS, 41350, NEW | {"name": "n" * REQUEST_MAX_BYTES}),
    get("unknown topic", "/v1/topics/none", 40403),
    get("partitions of an unknown topic", "/v1/topics/none/partitions", 40403),
    Bad("deletion of an unknown topic", "DELETE", "/v1/topics/none", 40403),
    get("unknown broker by id", "/v1/brokers/77", 404),
    get("broker by no number", "/v1/brokers/one", 40050, says="broker"),
    bad_json("unknown election", ELECTIONS, 40050, {"type": "free", "partitions": None}, "type"),
    bad_json(
        "election in an unknown topic",
        ELECTIONS,
        40403,
        {"type": "preferred", "partitions": [{"topic": "none", "partition": 0}]},
    ),
    bad_json(
        "election in an unknown partition",
        ELECTIONS,
        40402,
        {"type": "unclean", "partitions": [{"topic": "t", "partition": 9}]},
    ),
    bad_json("malformed election", ELECTIONS, 40050, "elect!"),
    bad_json("what if, unknown kind", WHAT_IF, 40050, QUESTION | {"kind": "any"}, says="kind"),
    bad_json("what if, duplicate replica", WHAT_IF, 40050, QUESTION | {"assignment": [1, 1]}),
    bad_json("what if, wrong type", WHAT_IF, 40050, QUESTION | {"isr": "1"}, says="isr"),
    bad_json("what if, no target", STEPS, 40050, {"start": [1, 2]}, says="target"),
    bad_json("what if, a broker twice", STEPS, 40050, {"start": [1, 1], "target": [2]}),
    bad_json(
        "placement, too few brokers",
        PLACEMENT,
        40002,
        {"brokers": [{"id": 1}], "partitions": 1, "replication_factor": 2},
    ),
    bad_json(
        "placement, duplicate broker",
        PLACEMENT,
        40050,
        {"brokers": [{"id": 1}, {"id": 1}], "partitions": 1, "replication_factor": 1},
    ),
    get("unknown route", "/v1/nothing", 404),
    Bad("wrong method", "PUT", TOPICS, 405),
]

ADMINISTRATION += CONFIGS + EXPORTS + OPERATIONS + PLANS + QUESTIONS + REASSIGNMENTS
ADMINISTRATION += OF_ADMINISTRATION
OTHERS += OF_BROKERS

HEARTBEAT = [
    command("malformed heartbeat", rpc.HEARTBEAT_PATH, 40050, b"{"),
    command("heartbeat, missing members", rpc.HEARTBEAT_PATH, 40050, b'{"broker_id": 1}'),
    Bad("heartbeat, wrong content type", "POST", rpc.HEARTBEAT_PATH, 41550, b"{}", TEXT),
]
