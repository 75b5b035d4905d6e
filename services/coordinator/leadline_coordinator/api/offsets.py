"""Offsets of groups: reading, resetting, deleting, lag. Committing is in `commit.py`."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query

from leadline_client.errors import (
    ConnectionLost,
    CoordinatorNotAvailable,
    GroupNotEmpty,
    InvalidRequest,
    LeaderNotAvailable,
    LeadlineError,
    NotCoordinator,
    OffsetOutOfRange,
    StoreOutcomeUnknown,
    UnknownGroup,
    UnknownPartition,
    UnknownTopic,
)
from leadline_common.http.errors import error_responses
from leadline_coordinator.api import models
from leadline_coordinator.api.groups import GroupName
from leadline_coordinator.runtime.service import CoordinatorService

TAG: Final = "offsets"

WRITE_ERRORS: Final[tuple[type[LeadlineError], ...]] = (
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


def _add_administration(router: APIRouter, coordinator: CoordinatorService) -> None:
    @router.post(
        "/groups/{group}/offsets/reset",
        summary="Set where a group begins",
        responses=error_responses(
            *WRITE_ERRORS,
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
        responses=error_responses(*WRITE_ERRORS),
    )
    async def delete_offsets(
        group: GroupName,
        topic: Annotated[str | None, Query(description="Only of this topic")] = None,
    ) -> models.OffsetsGone:
        """Delete the offsets of a group without members: of one topic, or all."""
        deleted = await coordinator.offsets().delete(group, topic)
        return models.OffsetsGone(deleted=deleted)
