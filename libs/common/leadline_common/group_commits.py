"""Commits of offsets: request and response of `POST /v1/groups/{group}/offsets`. Pure: no IO.

Coordinators answer it, and brokers forward it to the active one. The types are msgspec structs,
because every consumer sends it every few seconds.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

COMMIT_PATH: Final = "/v1/groups/{group}/offsets"
MAX_ROWS: Final = 100_000
"""Offsets in one request."""

ResetTo: TypeAlias = Literal["earliest", "latest", "timestamp", "offsets"]
"""Where a reset sets the offsets of a group."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=249)]
Number = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class OffsetToCommit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The offset of the next record to read, and the leader epoch of the record before it."""

    topic: Name
    partition: Number
    offset: Offset
    leader_epoch: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    metadata: Annotated[str, msgspec.Meta(max_length=4_096)] = ""


class CommitRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Offsets to commit, and the member that commits; without one for a group without members.

    A member states its `secret`, from the Welcome of its channel. `sequence` rises with each commit
    of the member; a repeated request has the same. A request that arrives after a later one of the
    member does not change what that one committed.
    `topic_ids` has the ids of the topics that were read; offsets of a topic that was recreated
    meanwhile are refused.
    """

    offsets: Annotated[tuple[OffsetToCommit, ...], msgspec.Meta(min_length=1, max_length=MAX_ROWS)]
    member: Annotated[str, msgspec.Meta(max_length=512)] | None = None
    generation: int | None = None
    coordinator_epoch: int | None = None
    sequence: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None = None
    topic_ids: dict[Name, str] = {}
    secret: Annotated[str, msgspec.Meta(max_length=255)] | None = None

    def __post_init__(self) -> None:
        """Refuse a member without generation or epoch, and a sequence without a member."""
        if self.member is not None and None in (self.generation, self.coordinator_epoch):
            raise ValueError("member requires generation and coordinator_epoch")
        if self.member is None and self.sequence is not None:
            raise ValueError("sequence requires member")
        if self.member is None and self.secret is not None:
            raise ValueError("secret requires member")


class CommittedRow(msgspec.Struct, frozen=True):
    """The outcome of one offset: `error_code` is 0 if it is durable.

    `superseded`: nothing was changed, because a commit of the member with a higher `sequence` came
    before this one.
    """

    topic: str
    partition: int
    error_code: int = 0
    message: str | None = None
    superseded: bool = False


class CommitAnswer(msgspec.Struct, frozen=True):
    """One row for each offset, in the order of the request."""

    offsets: tuple[CommittedRow, ...]
