"""Groups: listing, describing, rebalancing by hand, leaving, evicting, deleting."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Path

from leadline_client.channel import group_partitions
from leadline_client.errors import (
    ConnectionLost,
    CoordinatorNotAvailable,
    GroupNotEmpty,
    NotCoordinator,
    StoreOutcomeUnknown,
    UnknownGroup,
    UnknownMember,
)
from leadline_common.http.errors import error_responses
from leadline_coordinator.api import models
from leadline_coordinator.runtime.group_manager import GroupManager
from leadline_coordinator.runtime.service import CoordinatorService

TAG: Final = "groups"
GroupName = Annotated[
    str, Path(min_length=1, max_length=255, description="The group's name", examples=["billing"])
]
MemberName = Annotated[
    str, Path(description="The member's id", examples=["billing-6f1c0e5d2b7a4c11"])
]


def group_routes(coordinator: CoordinatorService) -> APIRouter:
    """Return the routes about groups and their members."""
    router = APIRouter(prefix="/v1", tags=[TAG])
    _add_reading(router, coordinator)
    _add_changes(router, coordinator)
    _add_members(router, coordinator)
    return router


def _add_reading(router: APIRouter, coordinator: CoordinatorService) -> None:
    @router.get("/groups", summary="All groups", responses=error_responses(CoordinatorNotAvailable))
    async def list_groups() -> models.Groups:
        """List the groups, by name: those with members, and those with offsets alone."""
        return models.Groups(groups=[_summary(desk) for desk in coordinator.desks()])

    @router.get(
        "/groups/{group}",
        summary="One group",
        responses=error_responses(CoordinatorNotAvailable, UnknownGroup),
    )
    async def read_group(group: GroupName) -> models.GroupBody:
        """Read a group's state, its members, who owns what, and what it is doing."""
        return group_view(coordinator.desk(group), coordinator.epoch)


def _add_changes(router: APIRouter, coordinator: CoordinatorService) -> None:
    @router.post(
        "/groups/{group}/rebalance",
        summary="Look at a group's assignment again",
        responses=error_responses(CoordinatorNotAvailable, UnknownGroup, ConnectionLost),
    )
    async def rebalance_group(group: GroupName) -> models.GroupBody:
        """Ask for a rebalance, as anything does that may change the assignment.

        Where the present one is what the assignor gives, nobody is stopped.
        """
        return group_view(coordinator.rebalance(group), coordinator.epoch)

    @router.delete(
        "/groups/{group}",
        summary="Delete a group with its offsets",
        responses=error_responses(
            CoordinatorNotAvailable,
            NotCoordinator,
            UnknownGroup,
            GroupNotEmpty,
            StoreOutcomeUnknown,
            ConnectionLost,
        ),
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
        """Leave, having stopped and committed: the partitions go to others at once."""
        coordinator.leave(group, member)
        return models.MemberGone(group=group, member=member)

    @router.delete(
        "/groups/{group}/members/{member}",
        summary="Put a member out of its group",
        responses=errors,
    )
    async def evict_member(group: GroupName, member: MemberName) -> models.MemberGone:
        """Put a member out; its partitions go to others once it has certainly stopped.

        That is within `group.evict.limit.ms`. A consumer that is alive joins again.
        """
        await coordinator.evict(group, member)
        return models.MemberGone(group=group, member=member)


def _summary(desk: GroupManager) -> models.GroupSummary:
    group = desk.group
    return models.GroupSummary(
        group=group.name,
        state=group.state,
        protocol=group.protocol,
        assignor=group.assignor,
        generation=group.generation,
        members=len(group.members),
    )


def group_view(desk: GroupManager, epoch: int) -> models.GroupBody:
    """Show a group whole."""
    group = desk.group
    parts = group.parts()
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
                topics=None
                if member.subscription.topics is None
                else list(member.subscription.topics),
                pattern=member.subscription.pattern,
                threads=member.subscription.threads,
                connected=member.line is not None,
                owned=[(topic, list(part)) for topic, part in group_partitions(parts[member.id])],
            )
            for member in members
        ],
        last_rebalance=group.why,
        rebalancing_since=desk.rebalancing_since_ms,
        last_error=group.last_error,
    )
