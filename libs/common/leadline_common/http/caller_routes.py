"""Who the sender of a request is, and what it may do: what a page shows or hides."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from leadline_common.access.caller import EVERYBODY, current_caller
from leadline_common.access.operations import operations_of
from leadline_common.access.rights import Role
from leadline_common.http.health import OPERATIONS
from leadline_common.http.router import ServiceRouter

ME_PATH: Final = "/v1/me"
_EXAMPLE: Final[dict[str, Any]] = {
    "user": "alice",
    "authenticated": True,
    "roles": ["viewer"],
    "grants": [{"role": "viewer", "topics": ["*"], "groups": ["*"]}],
    "operations": ["list_brokers", "read_cluster", "read_events", "read_metadata"],
}


class GrantedRole(BaseModel):
    """A role for some topics and groups: names, `prefix*`, or `*` for all."""

    role: Role
    topics: list[str]
    groups: list[str]


class CallerBody(BaseModel):
    """The sender of the request, and what it may do."""

    model_config = ConfigDict(json_schema_extra={"example": _EXAMPLE})

    user: str | None = Field(description="null in a cluster without authentication")
    authenticated: bool = Field(
        description="Whether rights are checked; if not, everybody may do everything"
    )
    roles: list[Role]
    grants: list[GrantedRole]
    operations: list[str] = Field(
        description="Ids of the operations that are allowed, if only for some topics or groups"
    )


def caller_routes() -> ServiceRouter:
    """Return the route that tells a caller who it is."""
    router = ServiceRouter(tags=[OPERATIONS])

    @router.get(ME_PATH, summary="Get the caller and its rights")
    async def read_me() -> CallerBody:
        """Return the user who sends this request, the grants, and the operations they allow.

        A grant for some topics or groups allows an operation for those only: the operation
        itself still refuses others.
        """
        caller = current_caller()
        grants = [
            GrantedRole(role=one.role, topics=list(one.topics), groups=list(one.groups))
            for one in caller.access.grants
        ]
        return CallerBody(
            user=None if caller == EVERYBODY else caller.principal.name,
            authenticated=not caller.access.unlimited,
            roles=sorted({one.role for one in grants}),
            grants=grants,
            operations=operations_of(caller.access),
        )

    return router
