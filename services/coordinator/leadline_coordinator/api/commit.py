"""Committing offsets: the busy route, as every consumer calls it every few seconds."""

from __future__ import annotations

from typing import Annotated

import msgspec

from leadline_client.errors import LeadlineError, StaleGeneration, UnknownMember
from leadline_common.http import Parameter, ServiceApp, bulk_route
from leadline_coordinator.api.offsets import TAG, WRITE_ERRORS
from leadline_coordinator.runtime.offsets import Committer, NewOffset
from leadline_coordinator.runtime.service import CoordinatorService

MAX_ROWS = 100_000

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=249)]
Number = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class OffsetToCommit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The next record to read; `leader_epoch` is that of the record before it."""

    topic: Name
    partition: Number
    offset: Offset
    leader_epoch: Annotated[int, msgspec.Meta(ge=0)] | None = None
    metadata: Annotated[str, msgspec.Meta(max_length=4_096)] = ""


class CommitRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Offsets to commit, and who commits them; nobody is named for a group without members."""

    offsets: Annotated[tuple[OffsetToCommit, ...], msgspec.Meta(min_length=1, max_length=MAX_ROWS)]
    member: str | None = None
    generation: int | None = None
    coordinator_epoch: int | None = None

    def __post_init__(self) -> None:
        """Refuse a member that does not say when it was one."""
        if self.member is not None and None in (self.generation, self.coordinator_epoch):
            raise ValueError("a member states its generation and the coordinator epoch")


class CommittedRow(msgspec.Struct, frozen=True):
    """What became of one offset: `error_code` is 0 where it is durable."""

    topic: str
    partition: int
    error_code: int = 0
    message: str | None = None


class CommitAnswer(msgspec.Struct, frozen=True):
    """One row for each offset, in order."""

    offsets: tuple[CommittedRow, ...]


def add_commit_route(app: ServiceApp, coordinator: CoordinatorService) -> None:
    """Add the route that commits offsets."""

    async def commit(request: CommitRequest, group: str) -> CommitAnswer:
        by = Committer(request.member, request.generation, request.coordinator_epoch)
        offsets = [
            NewOffset(one.topic, one.partition, one.offset, one.leader_epoch, one.metadata)
            for one in request.offsets
        ]
        refusals = await coordinator.offsets().commit(group, by, offsets)
        return CommitAnswer(tuple(map(_row, offsets, refusals)))

    bulk_route(
        app,
        "/v1/groups/{group}/offsets",
        commit,
        CommitRequest,
        CommitAnswer,
        tag=TAG,
        parameters=[_GROUP],
        name="commit_offsets",
        summary="Commit offsets",
        description=(
            "What is answered with `error_code` 0 is durable. A member commits under its own "
            "generation what it owns; each offset is accepted or refused by itself. Without a "
            "member, offsets of a group that has none are set: for consumers that share out "
            "partitions by themselves."
        ),
        errors=[*WRITE_ERRORS, UnknownMember, StaleGeneration],
        request_example=CommitRequest(
            (OffsetToCommit("orders", 0, 42, 3),), "billing-6f1c0e5d2b7a4c11", 7, 3
        ),
        response_example=CommitAnswer((CommittedRow("orders", 0),)),
    )


_GROUP = Parameter(
    "group",
    "The group's name",
    {"type": "string", "minLength": 1, "maxLength": 255},
    place="path",
    example="billing",
)


def _row(offset: NewOffset, why: LeadlineError | None) -> CommittedRow:
    if why is None:
        return CommittedRow(offset.topic, offset.partition)
    return CommittedRow(offset.topic, offset.partition, why.code, why.message)
