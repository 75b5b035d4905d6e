"""Routes that read, reset and delete offsets, and read lag. `commit.py` commits offsets."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query

from leadline_client.errors import (
    CoordinatorNotAvailable,
    InvalidRequest,
    LeaderNotAvailable,
    OffsetOutOfRange,
    UnknownGroup,
    UnknownPartition,
    UnknownTopic,
)
from leadline_client.wire import TopicPartition
from leadline_common.http.errors import error_responses
from leadline_coordinator.api import models
from leadline_coordinator.api.groups import WRITE_ERRORS, GroupName
from leadline_coordinator.runtime.service import CoordinatorService

TAG: Final = "offsets"


def offset_routes(coordinator: CoordinatorService) -> APIRouter:
    """Return the routes about offsets."""
    router = APIRouter(prefix="/v1", tags=[TAG])
    _add_reading(router, coordinator)
    _add_administration(router, coordinator)
    return router


def _add_reading(router: APIRouter, coordinator: CoordinatorService) -> None:
    errors = error_responses(CoordinatorNotAvailable, UnknownGroup)

    @router.get("/groups/{group}/offsets", summary="List committed offsets", responses=errors)
    async def read_offsets(group: GroupName) -> models.OffsetsBody:
        """List the committed offsets of a group."""
        offsets = coordinator.manager(group).committer.offsets
        return models.OffsetsBody(
            offsets=[
                models.OffsetBody(
                    topic=topic,
                    partition=number,
                    offset=committed.offset,
                    leader_epoch=committed.leader_epoch,
                    metadata=committed.metadata,
                    time=committed.time_ms,
                )
                for (topic, number), committed in sorted(offsets.items())
            ]
        )

    @router.get("/groups/{group}/lag", summary="Get the lag of a group", responses=errors)
    async def read_lag(group: GroupName) -> models.LagBody:
        """Compare committed offsets with the ends of the logs, which the leaders report."""
        rows = await coordinator.offsets().lag(group)
        return models.LagBody(
            partitions=[models.LagRow.model_validate(row, from_attributes=True) for row in rows],
            total=sum(row.lag or 0 for row in rows),
        )


def _add_administration(router: APIRouter, coordinator: CoordinatorService) -> None:
    @router.post(
        "/groups/{group}/offsets/reset",
        summary="Reset the offsets of a group",
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

        `to` is the beginning or the end of each log, the first record at or after a time (the
        end if there is none), or explicit offsets.
        """
        named = {TopicPartition(one.topic, one.partition) for one in body.partitions}
        changes = await coordinator.offsets().reset(
            group,
            body.to,
            named | coordinator.partitions_of(body.topics),
            timestamp=body.timestamp,
            offsets={
                TopicPartition(one.topic, one.partition): one.offset for one in body.offsets or ()
            },
            dry_run=body.dry_run,
        )
        return models.ResetDone(
            offsets=[models.ResetRow.model_validate(row, from_attributes=True) for row in changes],
            dry_run=body.dry_run,
        )

    @router.delete(
        "/groups/{group}/offsets",
        summary="Delete the offsets of a group",
        responses=error_responses(*WRITE_ERRORS),
    )
    async def delete_offsets(
        group: GroupName,
        topic: Annotated[str | None, Query(description="Only offsets of this topic")] = None,
    ) -> models.OffsetsGone:
        """Delete the offsets of a group without members, of one topic or all."""
        deleted = await coordinator.offsets().delete(group, topic)
        return models.OffsetsGone(deleted=deleted)
