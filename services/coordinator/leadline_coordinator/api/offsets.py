"""Offsets of groups: committing, reading, resetting, deleting, lag."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter

from leadline_client.errors import (
    ConnectionLost,
    CoordinatorNotAvailable,
    GroupNotEmpty,
    InvalidRequest,
    LeaderNotAvailable,
    LeadlineError,
    NotCoordinator,
    OffsetOutOfRange,
    StaleGeneration,
    StoreOutcomeUnknown,
    UnknownGroup,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
)
from leadline_common.http.errors import error_responses
from leadline_coordinator.api import models
from leadline_coordinator.api.groups import GroupName
from leadline_coordinator.runtime.offsets import Committer, NewOffset
from leadline_coordinator.runtime.service import CoordinatorService

TAG: Final = "offsets"

_WRITE_ERRORS: Final[tuple[type[LeadlineError], ...]] = (
    CoordinatorNotAvailable,
    NotCoordinator,
    UnknownGroup,
    GroupNotEmpty,
    StoreOutcomeUnknown,
    ConnectionLost,
)


def offset_routes(coordinator: CoordinatorService) -> APIRouter:
    """Return the routes about offsets."""
    router = APIRouter(prefix="/v1", tags=[TAG])
    _add_reading(router, coordinator)
    _add_commit(router, coordinator)
    _add_administration(router, coordinator)
    return router


def _add_reading(router: APIRouter, coordinator: CoordinatorService) -> None:
    errors = error_responses(CoordinatorNotAvailable, UnknownGroup)

    @router.get("/groups/{group}/offsets", summary="The committed offsets", responses=errors)
    async def read_offsets(group: GroupName) -> models.OffsetsBody:
        """Read every offset that the group has committed."""
        committed = coordinator.desk(group).committer.offsets
        return models.OffsetsBody(
            offsets=[
                models.OffsetBody(
                    topic=topic,
                    partition=number,
                    offset=one.offset,
                    leader_epoch=one.leader_epoch,
                    metadata=one.metadata,
                    time=one.time_ms,
                )
                for (topic, number), one in sorted(committed.items())
            ]
        )

    @router.get("/groups/{group}/lag", summary="How far a group is behind", responses=errors)
    async def read_lag(group: GroupName) -> models.LagBody:
        """Compare the committed offsets with the ends of the logs, as their leaders tell them."""
        rows = await coordinator.offsets().lag(group)
        return models.LagBody(
            partitions=[models.LagRow.model_validate(row, from_attributes=True) for row in rows],
            total=sum(row.lag or 0 for row in rows),
        )


def _add_commit(router: APIRouter, coordinator: CoordinatorService) -> None:
    @router.post(
        "/groups/{group}/offsets",
        summary="Commit offsets",
        responses=error_responses(*_WRITE_ERRORS, UnknownMember, StaleGeneration),
    )
    async def commit_offsets(group: GroupName, body: models.CommitBody) -> models.CommittedBody:
        """Commit offsets; what is answered with `error_code` 0 is durable.

        A member commits under its own generation what it owns; each offset is accepted
        or refused by itself. Without a member, offsets of a group that has none are set:
        for consumers that share out partitions by themselves.
        """
        by = Committer(body.member, body.generation, body.coordinator_epoch)
        offsets = [
            NewOffset(one.topic, one.partition, one.offset, one.leader_epoch, one.metadata)
            for one in body.offsets
        ]
        refusals = await coordinator.offsets().commit(group, by, offsets)
        return models.CommittedBody(
            offsets=[_committed(one, why) for one, why in zip(offsets, refusals, strict=True)]
        )


def _committed(offset: NewOffset, why: LeadlineError | None) -> models.CommittedRow:
    return models.CommittedRow(
        topic=offset.topic,
        partition=offset.partition,
        error_code=0 if why is None else why.code,
        message=None if why is None else why.message,
    )


def _add_administration(router: APIRouter, coordinator: CoordinatorService) -> None:
    @router.post(
        "/groups/{group}/offsets/reset",
        summary="Set where a group begins",
        responses=error_responses(
            *_WRITE_ERRORS,
            InvalidRequest,
            UnknownTopic,
            UnknownPartition,
            OffsetOutOfRange,
            LeaderNotAvailable,
        ),
    )
    async def reset_offsets(group: GroupName, body: models.ResetBody) -> models.ResetDone:
        """Set the offsets of a group without members, all or none.

        To the beginning or end of each log, to the first record at or after a time (the
        end where there is none), or to offsets that are named.
        """
        names = {(one.topic, one.partition) for one in body.partitions}
        names |= coordinator.partitions_of(body.topics)
        changes = await coordinator.offsets().reset(
            group,
            body.to,
            names,
            timestamp=body.timestamp,
            offsets={(one.topic, one.partition): one.offset for one in body.offsets or ()},
            dry_run=body.dry_run,
        )
        return models.ResetDone(
            offsets=[models.ResetRow.model_validate(row, from_attributes=True) for row in changes],
            dry_run=body.dry_run,
        )

    @router.delete(
        "/groups/{group}/offsets",
        summary="Delete a group's offsets",
        responses=error_responses(*_WRITE_ERRORS),
    )
    async def delete_offsets(group: GroupName, topic: str | None = None) -> models.OffsetsGone:
        """Delete the offsets of a group without members: of one topic, or all."""
        committed = coordinator.desk(group).committer.offsets
        names = [name for name in committed if topic is None or name[0] == topic]
        deleted = await coordinator.offsets().delete(group, names) if names else 0
        return models.OffsetsGone(deleted=deleted)
