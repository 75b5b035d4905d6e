"""Copies of what is staged: what the replicas of a partition say to one another about them.

A leader has the others keep what is staged with it, and let go of it again; a new leader
asks for what it lacks. As MessagePack, because it carries record batches. Pure: no IO.
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
"""It names a file."""


class StagedRequest(msgspec.Struct, frozen=True):
    """Who asks whom about which partition (rule R1).

    `broker_id` and `incarnation` are of the broker that is asked, `leader` leads the
    partition in `leader_epoch` and asks.
    """

    broker_id: int
    incarnation: int
    leader: int
    leader_epoch: int
    topic_id: str
    partition: int


class KeepStagedRequest(StagedRequest, frozen=True):
    """Keep an upload, as it is kept by the leader; what is kept already stays."""

    staged_id: StagedId
    records: bytes


class DropStagedRequest(StagedRequest, frozen=True):
    """Let go of uploads, those that are kept."""

    staged_ids: list[str]


class ReadStagedRequest(StagedRequest, frozen=True):
    """Return an upload."""

    staged_id: str


class StagedDone(msgspec.Struct, frozen=True):
    """It is done."""


class StagedRecords(msgspec.Struct, frozen=True):
    """The record batches of an upload, as they are on the disk: nobody has checked them."""

    records: bytes
