"""Routes about groups and their members, and the table `groups` for programs."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Path, Request
from starlette.responses import Response, StreamingResponse

from leadline_client.channel import group_partitions
from leadline_client.errors import (
    ConnectionLost,
    CoordinatorNotAvailable,
    GroupNotEmpty,
    LeadlineError,
    NotCoordinator,
    StoreOutcomeUnknown,
    UnknownGroup,
    UnknownMember,
)
from leadline_common.api.exports import TAG as EXPORT_TAG
from leadline_common.export_tables import encode_rows
from leadline_common.http.errors import error_responses
from leadline_common.http.ndjson import ndjson_documentation, ndjson_response
from leadline_coordinator.api import models
from leadline_coordinator.runtime.group_manager import GroupManager
from leadline_coordinator.runtime.service import CoordinatorService

TAG: Final = "groups"
WRITE_ERRORS: Final[tuple[type[LeadlineError], ...]] = (
    CoordinatorNotAvailable,
    NotCoordinator,
    UnknownGroup,
    GroupNotEmpty,
    StoreOutcomeUnknown,
    ConnectionLost,
)
"""The errors of a write to a group without members."""
EPOCH_HEADER: Final = "Leadline-Coordinator-Epoch"
"""Header of the table: the coordinator epoch of the answer."""

GroupName = Annotated[
    str, Path(min_length=1, max_length=255, description="The group's name", examples=["billing"])
]
MemberName = Annotated[
    str, Path(description="The member's id", examples=["billing-6f1c0e5d2b7a4c11"])
]
_LINE: Final = (
    '{"group":"billing","state":"stable","protocol":"cooperative","assignor":"sticky",'
    '"generation":7,"coordinator_epoch":3,"members":[…], …}\n'
)
_HEADERS: Final = {EPOCH_HEADER: "The coordinator epoch of the answer"}


def group_routes(coordinator: CoordinatorService) -> APIRouter:
    """Return the routes about groups and their members."""
    router = APIRouter(prefix="/v1", tags=[TAG])
    _add_reading(router, coordinator)
    _add_changes(router, coordinator)
    _add_members(router, coordinator)
    return router


def export_routes(coordinator: CoordinatorService) -> APIRouter:
    """Return the route of the table `groups`; the other tables are the controller's."""
    router = APIRouter(prefix="/v1", tags=[EXPORT_TAG])

    @router.get(
        "/export/groups",
        summary="Export groups",
        response_class=StreamingResponse,
        responses=ndjson_documentation(_LINE, "One group on each line, by name", _HEADERS)
        | error_responses(CoordinatorNotAvailable),
    )
    async def export_groups(request: Request) -> Response:
        """Return a snapshot of all groups, each as `GET /v1/groups/{group}` returns it.

        `coordinator_epoch` and `generation` identify the state of a group. Groups are not part
        of the cluster metadata and have no metadata version.
        """
        epoch = coordinator.epoch
        rows = [group_view(manager, epoch).model_dump() for manager in coordinator.managers()]
        return ndjson_response(request, encode_rows(rows), {EPOCH_HEADER: str(epoch)})

    return router


def _add_reading(router: APIRouter, coordinator: CoordinatorService) -> None:
    @router.get(
        "/groups", summary="List groups", responses=error_responses(CoordinatorNotAvailable)
    )
    async def list_groups() -> models.Groups:
        """List all groups by name, also those that have only offsets and no members."""
        return models.Groups(groups=[_summary(manager) for manager in coordinator.managers()])

    @router.get(
        "/groups/{group}",
        summary="Get a group",
        responses=error_responses(CoordinatorNotAvailable, UnknownGroup),
    )
    async def read_group(group: GroupName) -> models.GroupBody:
        """Get a group's state, members, and assignment."""
        return group_view(coordinator.manager(group), coordinator.epoch)


def _add_changes(router: APIRouter, coordinator: CoordinatorService) -> None:
    @router.post(
        "/groups/{group}/rebalance",
        summary="Rebalance a group",
        responses=error_responses(CoordinatorNotAvailable, UnknownGroup, ConnectionLost),
    )
    async def rebalance_group(group: GroupName) -> models.GroupBody:
        """Request a rebalance, as a change of members or topics does.

        If the present assignment is what the assignor computes, no member is stopped.
        """
        return group_view(coordinator.rebalance(group), coordinator.epoch)

    @router.delete(
        "/groups/{group}",
        summary="Delete a group and its offsets",
        responses=error_responses(*WRITE_ERRORS),
    )
    async def delete_group(group: GroupName) -> models.GroupGone:
        """Delete a group that has no members."""
        await coordinator.delete(group)
        return models.GroupGone(group=group)


def _add_members(router: APIRouter, coordinator: CoordinatorService) -> None:
    errors = error_responses(CoordinatorNotAvailable, UnknownGroup, UnknownMember, ConnectionLost)

    @router.post(
        "/groups/{group}/members/{member}/leave",
        summary="Leave a group",
        responses=errors,
    )
    async def leave_group(group: GroupName, member: MemberName) -> models.MemberGone:
        """Leave after stopping and committing; the partitions go to other members at once."""
        coordinator.leave(group, member)
        return models.MemberGone(group=group, member=member)

    @router.delete(
        "/groups/{group}/members/{member}",
        summary="Evict a member from its group",
        responses=errors,
    )
    async def evict_member(group: GroupName, member: MemberName) -> models.MemberGone:
        """Evict a member; its partitions go to other members once it has certainly stopped.

        That takes at most `group.evict.limit.ms`. A consumer that is alive joins again.
        """
        await coordinator.evict(group, member)
        return models.MemberGone(group=group, member=member)


def _summary(manager: GroupManager) -> models.GroupSummary:
    group = manager.group
    return models.GroupSummary(
        group=group.name,
        state=group.state,
        protocol=group.protocol,
        assignor=group.assignor,
        generation=group.generation,
        members=len(group.members),
    )


def group_view(manager: GroupManager, epoch: int) -> models.GroupBody:
    """Return a group as the API shows it."""
    group = manager.group
    assignment = group.assignment()
    members = [group.members[name] for name in sorted(group.members)]
    return models.GroupBody(
        group=group.name,
        state=group.state,
        protocol=group.protocol,
        assignor=group.assignor,
        generation=group.generation,
        coordinator_epoch=epoch,
        members=[
            models.MemberBody(
                id=member.id,
                instance_id=member.subscription.instance_id,
                client_id=member.subscription.client_id,
                topics=member.subscription.topics,
                pattern=member.subscription.pattern,
                threads=member.subscription.threads,
                connected=member.session is not None,
                owned=group_partitions(assignment[member.id]),
            )
            for member in members
        ],
        last_rebalance=group.rebalance_reason,
        rebalancing_since=manager.rebalancing_since_ms,
        last_error=group.last_error,
    )
