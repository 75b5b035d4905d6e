"""Parameters that the framework would ignore, or would read as others; see `bad_input`."""

from __future__ import annotations

from tests.support.bad_input.table import Bad

MALFORMED = 40050
PARTITION = "/v1/topics/t/partitions"


def asked(name: str, path: str, says: str, *, method: str = "GET") -> Bad:
    """Return a request with a parameter that is wrong."""
    return Bad(name, method, path, MALFORMED, says=says)


OF_BROKERS = [
    asked("offsets, misspelt parameter", f"{PARTITION}/0/offsets?time=3", "query.time"),
    asked("offsets at two times", f"{PARTITION}/0/offsets?timestamp=1&timestamp=2", "timestamp"),
    asked("offsets at a time with a sign", f"{PARTITION}/0/offsets?timestamp=%2B1", "timestamp"),
    asked("offsets of a number with a sign", f"{PARTITION}/%2B0/offsets", "path.partition"),
    asked("offsets of a number in groups", f"{PARTITION}/0_0/offsets", "path.partition"),
    asked("epoch with a fraction", f"{PARTITION}/0/epochs/1.0", "path.epoch"),
    Bad("offsets in an earlier epoch", "GET", f"{PARTITION}/0/offsets?leader_epoch=0", 40951),
    Bad("offsets in a later epoch", "GET", f"{PARTITION}/0/offsets?leader_epoch=999", 40952),
    Bad("epoch's end in an earlier one", "GET", f"{PARTITION}/0/epochs/0?leader_epoch=0", 40951),
]
"""They are meant for the leader of t-0, in an epoch above 0."""

OF_ADMINISTRATION = [
    asked("audit, misspelt parameter", "/v1/audit?kinds=topic_created", "query.kinds"),
    asked("audit of two topics", "/v1/audit?topic=t&topic=u", "query.topic"),
    asked("audit, page with a sign", "/v1/audit?page_size=%2B1", "query.page_size"),
    asked("audit, page with groups of digits", "/v1/audit?page_size=1_0", "query.page_size"),
    asked("brokers, unknown parameter", "/v1/brokers?rack=a", "query.rack"),
    asked("metadata, misspelt parameter", "/v1/metadata?topic=t", "query.topic"),
    asked("deletion, misspelt parameter", "/v1/topics/t?wait=1", "query.wait", method="DELETE"),
]
