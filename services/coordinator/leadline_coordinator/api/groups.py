"""Groups and their members, and the table `groups` for programs."""

from __future__ import annotations

from typing import Final

from fastapi import Request
from starlette.responses import Response, StreamingResponse

from leadline_client.channel import group_partitions
from leadline_client.errors import CoordinatorNotAvailable
from leadline_common.access.caller import visible
from leadline_common.api import group_models as models
from leadline_common.api.exports import TAG as EXPORT_TAG
from leadline_common.export_tables import encode_rows
from leadline_common.http.errors import error_responses
from leadline_common.http.ndjson import ndjson_documentation, ndjson_response
from leadline_common.http.router import ServiceRouter
from leadline_common.slices import slices
from leadline_coordinator.api.offsets import OffsetEndpoints
from leadline_coordinator.api.polls import join_group
from leadline_coordinator.runtime.group_manager import GroupManager
from leadline_coordinator.runtime.service import CoordinatorService

EPOCH_HEADER: Final = "Leadline-Coordinator-Epoch"
"""Header of the table: the coordinator epoch of the answer."""
_AT_ONCE: Final = 1_000
"""Groups that are summarized in one turn: each takes about 10 µs."""
_LINE: Final = (
    '{"group":"billing","state":"stable","protocol":"cooperative","assignor":"sticky",'
    '"generation":7,"coordinator_epoch":3,"members":[…], …}\n'
)
_HEADERS: Final = {EPOCH_HEADER: "The coordinator epoch of the answer"}


class GroupEndpoints(OffsetEndpoints):
    """Implements `leadline_common.api.groups.GroupAdministration`."""

    def __init__(self, coordinator: CoordinatorService) -> None:
        self._coordinator = coordinator

    async def list_groups(self) -> models.Groups:
        """Return all groups, summarized in turns of the loop."""
        known = {one.group.name: one for one in self._coordinator.managers()}
        names = visible("group", None, known.keys)
        groups: list[models.GroupSummary] = []
        async for some in slices(known if names is None else names, _AT_ONCE):
            groups += [_summary(known[name]) for name in some]
        return models.Groups(groups=groups)

    def read_group(self, group: str) -> models.GroupBody:
        """Return one group."""
        return group_view(self._coordinator.manager(group), self._coordinator.epoch)

    def rebalance_group(self, group: str) -> models.GroupBody:
        """Request a rebalance."""
        return group_view(self._coordinator.rebalance(group), self._coordinator.epoch)

    async def delete_group(self, group: str) -> models.GroupGone:
        """Delete a group without members."""
        await self._coordinator.delete(group)
        return models.GroupGone(group=group)

    def join_group(self, group: str, body: models.JoinBody) -> models.PollingMember:
        """Let a consumer that polls join."""
        return join_group(self._coordinator, group, body)

    def leave_group(self, group: str, member: str, body: models.LeaveBody) -> models.MemberGone:
        """Remove a member that has stopped and leaves."""
        self._coordinator.leave(group, member, body.secret)
        return models.MemberGone(group=group, member=member)

    async def evict_member(self, group: str, member: str) -> models.MemberGone:
        """Evict a member."""
        await self._coordinator.evict(group, member)
        return models.MemberGone(group=group, member=member)


def export_routes(coordinator: CoordinatorService) -> ServiceRouter:
    """Return the route of the table `groups`; the other tables are the controller's."""
    router = ServiceRouter(prefix="/v1", tags=[EXPORT_TAG])

    @router.get(
        "/export/groups",
        summary="Export groups",
        response_class=StreamingResponse,
        responses=ndjson_documentation(_LINE, "One group on each line, by name", _HEADERS)
        | error_responses(CoordinatorNotAvailable),
    )
    async def export_groups(request: Request) -> Response:
        """Return all groups, each as `GET /v1/groups/{group}` returns it when its turn comes.

        `coordinator_epoch` and `generation` identify the state of a group. Groups are not part
        of the cluster metadata and have no metadata version.
        """
        epoch = coordinator.epoch
        managers = coordinator.managers()
        # Made while the rows are sent: all of 10,000 groups take half a second.
        rows = (group_view(manager, epoch).model_dump() for manager in managers)
        return ndjson_response(request, encode_rows(rows), {EPOCH_HEADER: str(epoch)})

    return router


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
                topic_threads=dict(member.subscription.topic_threads),
                connected=member.session is not None,
                owned=group_partitions(assignment[member.id]),
            )
            for member in members
        ],
        last_rebalance=group.rebalance_reason,
        rebalancing_since=manager.rebalancing_since_ms,
        last_error=group.last_error,
    )
