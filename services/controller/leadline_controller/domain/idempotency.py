"""Requests that carry an idempotency key: what is remembered of them, and what a repetition means.

A key's record is a node of its own, and goes through three states:

- `begun` before the request is handled;
- `changed` in the very multi (or each of the multis) in which the request changes
  something, so that nobody has to guess whether it did;
- `done` with the answer, which every repetition is given.

A refusal removes the record: it changed nothing, and the same request may well
succeed later. A controller that dies in between leaves a `begun` record, of which
its successor knows that nothing was changed, nor ever will be (the old controller
is fenced, rule R11), so that the request is simply handled; or a `changed` one,
whose answer is lost for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from leadline_client.errors import IdempotencyKeyReused, RequestInDoubt, RequestUnderWay

State = Literal["begun", "changed", "done"]
MAX_RESPONSE_BYTES = 512 * 1024
"""The largest answer that is kept, compressed; a node must stay far below `jute.maxbuffer`."""


class StoredResponse(msgspec.Struct, frozen=True):
    """An answer to be given again. `body` is compressed (zlib)."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class KeyRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is remembered of a request with a key.

    `request` is a digest of method, path, query and body; `what` is the method and
    path for people; `epoch` that of the controller that began it; `time` in Unix ms.
    """

    state: State
    request: str
    what: str
    cause: str
    epoch: int
    time: int
    answer: StoredResponse | None = None
    version: int = 1


def encode_record(record: KeyRecord) -> bytes:
    """Encode a record as its node's value."""
    return msgspec.json.encode(record)


def decode_record(data: bytes) -> KeyRecord:
    """Decode the value of a record's node.

    Raises:
        msgspec.MsgspecError: it is none.

    """
    return msgspec.json.decode(data, type=KeyRecord)


def judge(record: KeyRecord, request: str, epoch: int, *, under_way: bool) -> StoredResponse | None:
    """Say what a request means whose key has a record: the answer to give, or None to handle it.

    Raises:
        IdempotencyKeyReused: the key was another request's.
        RequestUnderWay: the first one is being handled.
        RequestInDoubt: what became of the first one cannot be told from its record.

    """
    if record.request != request:
        raise IdempotencyKeyReused(
            f"this Idempotency-Key was given with another request ({record.what}); "
            "nothing was done: choose a new key for a new request"
        )
    if record.state == "done":
        if record.answer is None:
            raise RequestInDoubt(f"{_first(record)} succeeded; its answer was too large to be kept")
        return record.answer
    if under_way:
        raise RequestUnderWay(f"{_first(record)} is still under way: repeat it a little later")
    if record.state == "begun" and record.epoch < epoch:
        return None
    did = "made its change" if record.state == "changed" else "may have made its change"
    raise RequestInDoubt(
        f"{_first(record)} {did}, and its answer was lost; look at what it was to change, or at "
        f"the audit (GET /v1/audit?cause={record.cause}), before sending it under another key"
    )


def _first(record: KeyRecord) -> str:
    return f"the first request with this Idempotency-Key ({record.what}, cause {record.cause})"
