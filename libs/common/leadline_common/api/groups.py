"""The routes about consumer groups and their offsets, and their documentation.

Every coordinator serves these routes, and every broker forwards them to the active coordinator,
because clients may know or reach brokers only. Both declare them from here, so both show the
same documentation. `GroupAdministration` is what a coordinator implements.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final, Protocol

from fastapi import Path, Query
from fastapi.routing import APIRoute

from leadline_client.errors import (
    BodyTooLarge,
    ConnectionLost,
    CoordinatorNotAvailable,
    FencedInstance,
    GroupFull,
    GroupNotEmpty,
    GroupUnreadable,
    InstanceInUse,
    InvalidRequest,
    InvalidSubscription,
    LeaderNotAvailable,
    LeadlineError,
    NotCoordinator,
    OffsetOutOfRange,
    RebalanceInProgress,
    StaleGeneration,
    StoreOutcomeUnknown,
    TooManyChannels,
    TooManyGroups,
    TopicIdMismatch,
    UnknownGroup,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
    UnsupportedFormat,
    WrongMemberSecret,
)
from leadline_common.api import group_models as models
from leadline_common.api.routes import add_declared_routes, route
from leadline_common.group_commits import (
    COMMIT_PATH,
    CommitAnswer,
    CommitRequest,
    CommittedRow,
    OffsetToCommit,
)
from leadline_common.group_polls import (
    SYNC_PATH,
    AssignedRow,
    PartitionOfTopic,
    SessionPoint,
    SyncAnswer,
    SyncRequest,
)
from leadline_common.http.operation import Body, Operation, Parameter
from leadline_common.http.router import ServiceRouter
from leadline_common.http.strict_route import StrictRoute
from leadline_common.rpc import JSON

GROUPS_TAG: Final = "groups"
OFFSETS_TAG: Final = "offsets"
TAGS: Final = (
    {"name": GROUPS_TAG, "description": "Consumer groups and their members."},
    {"name": OFFSETS_TAG, "description": "Committed offsets and lag of groups."},
)

GroupName = Annotated[
    str, Path(min_length=1, max_length=255, description="The group's name", examples=["billing"])
]
MemberName = Annotated[
    str, Path(description="The member's id", examples=["billing-6f1c0e5d2b7a4c11"])
]
_Topic = Annotated[str | None, Query(description="Only offsets of this topic")]
_INACTIVE: Final[tuple[type[LeadlineError], ...]] = (
    NotCoordinator,
    UnknownGroup,
    GroupUnreadable,
    GroupNotEmpty,
    RebalanceInProgress,
)
"""The errors of a write to a group without members."""
_route = partial(route, unavailable=CoordinatorNotAvailable)


class GroupRoutes(Protocol):
    """What a coordinator answers about groups and their members."""

    @_route("GET /groups", "List groups")
    async def list_groups(self) -> models.Groups:
        """List all groups by name, also those that have only offsets and no members."""

    @_route("GET /groups/{group}", "Get a group", UnknownGroup, GroupUnreadable)
    def read_group(self, group: GroupName) -> models.GroupBody:
        """Get a group's state, members, and assignment."""

    @_route(
        "POST /groups/{group}/rebalance",
        "Rebalance a group",
        UnknownGroup,
        GroupUnreadable,
        RebalanceInProgress,
    )
    def rebalance_group(self, group: GroupName) -> models.GroupBody:
        """Request a rebalance, as a change of members or topics does.

        If the present assignment is what the assignor computes, no member is stopped.
        """

    @_route("DELETE /groups/{group}", "Delete a group and its offsets", *_INACTIVE)
    async def delete_group(self, group: GroupName) -> models.GroupGone:
        """Delete a group that has no members.

        It waits up to 5 s for former members that may still be consuming. A deletion that has
        begun is finished, also if its outcome is unknown.
        """

    @_route(
        "POST /groups/{group}/members/{member}/leave",
        "Leave a group",
        UnknownGroup,
        GroupUnreadable,
        UnknownMember,
        FencedInstance,
        WrongMemberSecret,
    )
    def leave_group(
        self, group: GroupName, member: MemberName, body: models.LeaveBody
    ) -> models.MemberGone:
        """Leave after stopping and committing; the partitions go to other members at once.

        Only the member itself can leave: it states its secret. An operator evicts a member.
        """

    @_route(
        "DELETE /groups/{group}/members/{member}",
        "Evict a member from its group",
        UnknownGroup,
        GroupUnreadable,
        UnknownMember,
    )
    async def evict_member(self, group: GroupName, member: MemberName) -> models.MemberGone:
        """Evict a member; its partitions go to other members once it has certainly stopped.

        That takes at most `group.evict.limit.ms`. A consumer that is alive joins again.
        """

    @_route(
        "POST /groups/{group}/consumers",
        "Join a group as a consumer that polls over HTTP",
        InvalidSubscription,
        WrongMemberSecret,
        InstanceInUse,
        RebalanceInProgress,
        GroupFull,
        TooManyGroups,
        TooManyChannels,
        status_code=201,
    )
    def join_group(self, group: GroupName, body: models.JoinBody) -> models.PollingMember:
        """Join, and then poll (`POST /v1/groups/{group}/consumers/{member}/poll` of any broker).

        A member that has not polled 10 s later is removed again, so that a response which is lost
        does no harm. Such a member and one with a channel are members alike: they share the
        partitions, and are listed, evicted and leave in the same way.
        """


class OffsetRoutes(Protocol):
    """What a coordinator answers about the offsets of groups, besides commits."""

    @_route("GET /groups/{group}/offsets", "List committed offsets", UnknownGroup, GroupUnreadable)
    async def read_offsets(self, group: GroupName) -> models.OffsetsBody:
        """List the committed offsets of a group."""

    @_route("GET /groups/{group}/lag", "Get the lag of a group", UnknownGroup, GroupUnreadable)
    async def read_lag(self, group: GroupName) -> models.LagBody:
        """Compare committed offsets with the ends of the logs, which the leaders report."""

    @_route(
        "POST /groups/{group}/offsets/reset",
        "Reset the offsets of a group",
        *_INACTIVE,
        InvalidRequest,
        UnknownTopic,
        UnknownPartition,
        TopicIdMismatch,
        OffsetOutOfRange,
        LeaderNotAvailable,
    )
    async def reset_offsets(self, group: GroupName, body: models.ResetBody) -> models.ResetDone:
        """Set the offsets of a group without members, all or none.

        `to` is the beginning or the end of each log, the first record at or after a time (the
        end if there is none), or explicit offsets.
        """

    @_route(
        "DELETE /groups/{group}/offsets",
        "Delete the offsets of a group",
        *_INACTIVE,
        defaults={"topic": None},
    )
    async def delete_offsets(self, group: GroupName, topic: _Topic) -> models.OffsetsGone:
        """Delete the offsets of a group without members, of one topic or all."""


class GroupAdministration(GroupRoutes, OffsetRoutes, Protocol):
    """What a coordinator implements: one method for each route, which raises its errors."""


def group_routes(kind: type[APIRoute] = StrictRoute) -> ServiceRouter:
    """Return the routes but that of commits; `app.state.administration` handles the requests.

    A `kind` of route may handle requests itself, as a broker does to forward them.
    """
    router = ServiceRouter(prefix="/v1", route_class=kind)
    add_declared_routes(router, GroupRoutes, GROUPS_TAG)
    add_declared_routes(router, OffsetRoutes, OFFSETS_TAG)
    return router


GROUP_PARAMETER: Final = Parameter(
    "group",
    "The group's name",
    {"type": "string", "minLength": 1, "maxLength": 255},
    place="path",
    example="billing",
)
MEMBER_PARAMETER: Final = Parameter(
    "member",
    "The member's id",
    {"type": "string"},
    place="path",
    example="billing-6f1c0e5d2b7a4c11",
)
SYNC: Final = Operation(
    method="POST",
    path=SYNC_PATH,
    name="sync_consumer",
    summary="Synchronize a polling consumer with its group",
    description=(
        "Brokers send this for each poll of a consumer; a consumer that reads partitions by itself "
        "may do so, too. The request says that all records of the answer with this `cursor` are "
        "processed, and that what this answer revoked is given up. The response has the partitions "
        "to read, and those to give up.\n\n"
        "With `watch`, the request says nothing, and is answered as soon as there is something to "
        "tell beyond that point."
    ),
    tags=[GROUPS_TAG],
    parameters=[GROUP_PARAMETER, MEMBER_PARAMETER],
    requests=[Body(JSON, "", SyncRequest, SyncRequest(models.MEMBER_SECRET))],
    responses=[
        Body(
            JSON,
            "What the consumer owns",
            SyncAnswer,
            SyncAnswer(
                SessionPoint(3, 12, 4, 9),
                7,
                30_000,
                30_000,
                "earliest",
                [AssignedRow("orders", "b1946ac92492d2347c6235b4d2611184", 0, 4, 42, 3)],
                [PartitionOfTopic("orders", 1)],
            ),
        )
    ],
    errors=[
        BodyTooLarge,
        UnsupportedFormat,
        CoordinatorNotAvailable,
        NotCoordinator,
        UnknownGroup,
        GroupUnreadable,
        UnknownMember,
        FencedInstance,
        WrongMemberSecret,
        RebalanceInProgress,
        TooManyChannels,
        StoreOutcomeUnknown,
    ],
)
"""The route of polls, which coordinators serve and brokers call."""
COMMIT: Final = Operation(
    method="POST",
    path=COMMIT_PATH,
    name="commit_offsets",
    summary="Commit offsets",
    description=(
        "An offset whose `error_code` is 0 is durable. A member commits offsets of the partitions "
        "that it owns, under its own generation, with the secret that it got when it joined. Each "
        "offset is accepted or refused separately. A "
        "request without a member sets offsets of a group that has no members, for consumers that "
        "assign partitions themselves.\n\n"
        "A request may be delayed, and arrive after later ones. So a member numbers its commits "
        "with `sequence`; one that is late is answered with `superseded`, and moves no offset "
        "back. `topic_ids` prevents that offsets of a deleted topic count for a topic that was "
        "created under its name."
    ),
    tags=[OFFSETS_TAG],
    parameters=[GROUP_PARAMETER],
    requests=[
        Body(
            JSON,
            "",
            CommitRequest,
            CommitRequest(
                (OffsetToCommit("orders", 0, 42, 3),),
                "billing-6f1c0e5d2b7a4c11",
                7,
                3,
                sequence=12,
                topic_ids={"orders": "b1946ac92492d2347c6235b4d2611184"},
                secret=models.MEMBER_SECRET,
            ),
        )
    ],
    responses=[Body(JSON, "The outcome", CommitAnswer, CommitAnswer((CommittedRow("orders", 0),)))],
    errors=[
        BodyTooLarge,
        UnsupportedFormat,
        CoordinatorNotAvailable,
        *_INACTIVE,
        StoreOutcomeUnknown,
        ConnectionLost,
        UnknownMember,
        FencedInstance,
        WrongMemberSecret,
        StaleGeneration,
    ],
)
"""The route of commits, which coordinators serve without the framework: it is a busy one."""
