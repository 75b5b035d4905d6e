"""The route that commits offsets. Every consumer calls it every few seconds, so it is fast."""

from __future__ import annotations

import msgspec

from leadline_client.errors import LeadlineError, StaleGeneration, UnknownMember
from leadline_common.http.app import ServiceApp
from leadline_common.http.bulk import bulk_route
from leadline_common.http.operation import Parameter
from leadline_coordinator.api.groups import WRITE_ERRORS
from leadline_coordinator.api.offsets import TAG
from leadline_coordinator.runtime.offsets import (
    CommitRequest,
    OffsetToCommit,
)
from leadline_coordinator.runtime.service import CoordinatorService


class CommittedRow(msgspec.Struct, frozen=True):
    """The outcome of one offset: `error_code` is 0 if it is durable."""

    topic: str
    partition: int
    error_code: int = 0
    message: str | None = None


class CommitAnswer(msgspec.Struct, frozen=True):
    """One row for each offset, in the order of the request."""

    offsets: tuple[CommittedRow, ...]


def add_commit_route(app: ServiceApp, coordinator: CoordinatorService) -> None:
    """Add the route that commits offsets."""

    async def commit(request: CommitRequest, group: str) -> CommitAnswer:
        refusals = await coordinator.offsets().commit(group, request)
        return CommitAnswer(tuple(map(_row, request.offsets, refusals)))

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
            "An offset whose `error_code` is 0 is durable. A member commits offsets of the "
            "partitions that it owns, under its own generation. Each offset is accepted or refused "
            "separately. A request without a member sets offsets of a group that has no members, "
            "for consumers that assign partitions themselves."
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


def _row(offset: OffsetToCommit, refusal: LeadlineError | None) -> CommittedRow:
    if refusal is None:
        return CommittedRow(offset.topic, offset.partition)
    return CommittedRow(offset.topic, offset.partition, refusal.code, refusal.message)
