"""Requests between the replicas of a partition about copies of staged uploads.

A leader asks the followers to keep a copy of each upload, and later to drop it. A new leader reads
the copies that it lacks. Encoded as MessagePack, because they contain record batches. Pure: no IO.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

KEEP_STAGED_PATH: Final = "/v1/replica/staged/keep"
DROP_STAGED_PATH: Final = "/v1/replica/staged/drop"
READ_STAGED_PATH: Final = "/v1/replica/staged/read"

StagedId = Annotated[
    str, msgspec.Meta(pattern="^[0-9a-f]{32}$", description="The id that staging answered")
]
"""The id, which is also the name of a file."""


class StagedRequest(msgspec.Struct, frozen=True):
    """The identities of a request (rule R1).

    `broker_id` and `incarnation` are those of the receiver. The sender, `leader`, leads the
    partition in `leader_epoch`.
    """

    broker_id: int
    incarnation: int
    leader: int
    leader_epoch: int
    topic_id: str
    partition: int


class KeepStagedRequest(StagedRequest, frozen=True):
    """Keep a copy of an upload; does nothing if the broker has one."""

    staged_id: StagedId
    records: bytes


class DropStagedRequest(StagedRequest, frozen=True):
    """Drop the copies of uploads; ignores uploads without a copy."""

    staged_ids: list[str]


class ReadStagedRequest(StagedRequest, frozen=True):
    """Read the copy of an upload."""

    staged_id: str


class StagedDone(msgspec.Struct, frozen=True):
    """The request was carried out."""


class StagedRecords(msgspec.Struct, frozen=True):
    """The record batches of an upload as stored on disk, without any check."""

    records: bytes
