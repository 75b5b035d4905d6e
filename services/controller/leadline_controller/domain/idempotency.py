"""Idempotency keys: the stored record of a request, and how a retry of it is answered.

The record of a key is a znode with three states:

- `begun` before the request is handled;
- `changed`, written in every multi in which the request changes something, so that the
  record proves whether it did;
- `done`, with the response, which every retry gets.

A refused request removes its record: it changed nothing, and a retry may succeed.

If the controller fails in between, its successor finds one of two states. `begun` means
that nothing was changed and, because the old controller is fenced (rule R11), never will
be: the successor handles the request. `changed` means that the response is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from leadline_client.errors import IdempotencyKeyReused, RequestInDoubt, RequestUnderWay
from leadline_common.znode_json import decode_json

State = Literal["begun", "changed", "done"]
MAX_RESPONSE_BYTES = 512 * 1024
"""The largest compressed response that is stored; a node must stay well below `jute.maxbuffer`."""


class StoredResponse(msgspec.Struct, frozen=True):
    """The response to the first request, for its retries. `body` is compressed with zlib."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class KeyRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored record of a request with a key.

    `request` is a digest of method, path, query and body; `what` is the method and path
    in readable form; `epoch` is that of the controller that began the request; `time` is
    in Unix ms.
    """

    state: State
    request: str
    what: str
    cause: str
    epoch: int
    time: int
    answer: StoredResponse | None = None
    version: int = 1


def decode_record(data: bytes) -> KeyRecord:
    """Decode the value of a record's node.

    Raises:
        msgspec.MsgspecError: the value is not a record.

    """
    record: KeyRecord = decode_json(data, KeyRecord)
    return record


def resolve(
    record: KeyRecord, request: str, epoch: int, *, under_way: bool
) -> StoredResponse | None:
    """Decide how to answer a request whose key has a record.

    Returns the stored response, or None if the request has to be handled.

    Raises:
        IdempotencyKeyReused: the key belongs to another request.
        RequestUnderWay: the first request is still being handled.
        RequestInDoubt: the record does not tell the outcome of the first request.

    """
    if record.request != request:
        raise IdempotencyKeyReused(
            f"this Idempotency-Key was already used for another request ({record.what}); "
            "nothing was changed: use a new key for each new request"
        )
    if record.state == "done":
        if record.answer is None:
            raise RequestInDoubt(f"{_first(record)} succeeded; its response was too large to store")
        return record.answer
    if under_way:
        raise RequestUnderWay(f"{_first(record)} is still in progress: retry in a moment")
    if record.state == "begun" and record.epoch < epoch:
        return None
    effect = "was applied" if record.state == "changed" else "may have been applied"
    raise RequestInDoubt(
        f"{_first(record)} {effect}, but its response was lost; check the resource or the audit "
        f"(GET /v1/audit?cause={record.cause}) before you send it with another key"
    )


def _first(record: KeyRecord) -> str:
    return f"the first request with this Idempotency-Key ({record.what}, cause {record.cause})"
