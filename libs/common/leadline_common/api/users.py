"""Users of the cluster: what they may do, and their tokens."""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated, Any, Protocol

from fastapi import Path
from pydantic import BaseModel, Field

from leadline_client.errors import InvalidRequest, NotFound, PolicyViolation
from leadline_common.access.rights import Role
from leadline_common.api.models import example
from leadline_common.api.routes import route

TAG = "users"
TAGS = ({"name": TAG, "description": "Who may do what: users, their grants, tokens and quotas."},)
TOKENS_PATH = "/users/{user}/tokens"

UserName = Annotated[str, Path(description="The user's name", examples=["alice"])]
TokenId = Annotated[
    str, Path(description="The part of a token before the dot", examples=["Xk3mP0aQ"])
]
_PATTERNS = "names, and prefixes that end with `*`; `*` alone stands for all"

_GRANT = {"role": "producer", "topics": ["orders.*"], "groups": ["*"]}
_TOKEN = {"id": "Xk3mP0aQ", "created_at": 1_764_000_000_000, "expires_at": None}
_QUOTAS = {
    "produce_bytes_per_s": 10_000_000,
    "fetch_bytes_per_s": None,
    "requests_per_s": 100,
    "partition_changes_per_s": 5,
}
_USER = {
    "name": "alice",
    "grants": [_GRANT],
    "tokens": [_TOKEN],
    "quotas": _QUOTAS,
    "created_at": 1_764_000_000_000,
    "version": "4294967461",
}


class GrantBody(BaseModel):
    """A role for some topics and groups. Only one for all of them counts for the cluster.

    Without `topics` and `groups` it is for all. With one of them, it is for none of the other.
    """

    model_config = example(_GRANT)

    role: Role
    topics: list[str] | None = Field(default=None, description=f"Topics: {_PATTERNS}")
    groups: list[str] | None = Field(default=None, description=f"Consumer groups: {_PATTERNS}")


class TokenBody(BaseModel):
    """A token of a user, without its secret."""

    model_config = example(_TOKEN)

    id: str = Field(description="The part of the token before the dot")
    created_at: int = Field(description="Unix ms")
    expires_at: int | None = Field(description="Unix ms; null: never")


def _quota(meaning: str) -> Any:
    stated = f"{meaning}; 0: no quota, null: the default"
    return Field(default=None, ge=0, strict=True, description=stated)


class QuotasBody(BaseModel):
    """All quotas of a user, per second on average; ten times as many are admitted at once.

    The default is that of the setting: `quota.produce.bytes.per.s` and so on.
    """

    model_config = example(_QUOTAS)

    produce_bytes_per_s: int | None = _quota("Bytes that it may produce on each broker")
    fetch_bytes_per_s: int | None = _quota("Bytes that it may read from each broker")
    requests_per_s: int | None = _quota("Requests that it may send to each service")
    partition_changes_per_s: int | None = _quota("Partitions that it may create and delete")


class UserBody(BaseModel):
    """A user with its grants, its tokens and its quotas."""

    model_config = example(_USER)

    name: str
    grants: list[GrantBody]
    tokens: list[TokenBody] = Field(description="Those that have not expired")
    quotas: QuotasBody
    created_at: int = Field(description="Unix ms")
    version: str = Field(
        description="Changes with each change of the user; in quotes it is its ETag, for `If-Match`"
    )


class UsersBody(BaseModel):
    """All users, by name."""

    model_config = example({"users": [_USER]})

    users: list[UserBody]


class NewUserBody(BaseModel):
    """A user to create. It has no token yet."""

    model_config = example({"name": "alice", "grants": [_GRANT]})

    name: str = Field(description="1 to 128 letters, digits, dots, dashes, underscores and @")
    grants: list[GrantBody] = Field(default=[], description="None: the user may do nothing")


class GrantsBody(BaseModel):
    """All grants of a user."""

    model_config = example({"grants": [_GRANT]})

    grants: list[GrantBody]


class NewTokenBody(BaseModel):
    """A token to make."""

    model_config = example({"expires_in_ms": 7_776_000_000})

    expires_in_ms: int | None = Field(
        default=None,
        ge=1,
        le=10**13,
        strict=True,
        description="How long it is valid; null: for ever",
    )


class SecretBody(BaseModel):
    """A new token. Nobody can read it again: only a hash is kept."""

    model_config = example(
        {
            "id": "Xk3mP0aQ",
            "token": "Xk3mP0aQ.an-example-of-43-characters-which-nobody-has",
            "expires_at": 1_771_776_000_000,
        }
    )

    id: str
    token: str = Field(description="What the user sends as `Authorization: Bearer TOKEN`")
    expires_at: int | None = Field(description="Unix ms; null: never")


class UserAdministration(Protocol):
    """What a controller answers about users."""

    @route("GET /users", "List the users", name="list_users")
    async def users(self) -> UsersBody:
        """Return all users with their grants and tokens, but no secrets."""

    @route(
        "POST /users",
        "Create a user",
        InvalidRequest,
        PolicyViolation,
        status_code=201,
        response_description="The user",
    )
    async def create_user(self, new: NewUserBody) -> UserBody:
        """Create a user with grants; make a token for it then (`POST /v1/users/{user}/tokens`)."""

    @route(
        "GET /users/{user}",
        "Get a user",
        NotFound,
        name="read_user",
        etag_of=attrgetter("version"),
    )
    async def user(self, user: UserName) -> UserBody:
        """Return the grants, the tokens and the quotas of a user, but no secrets."""

    @route("DELETE /users/{user}", "Delete a user", NotFound)
    async def delete_user(self, user: UserName) -> UserBody:
        """Delete a user with all its tokens; services refuse them within seconds."""

    @route("PUT /users/{user}/grants", "Set the grants of a user", InvalidRequest, NotFound)
    async def set_grants(self, user: UserName, wanted: GrantsBody) -> UserBody:
        """Replace all grants of a user; they are in force on all services within seconds.

        Whoever changes what it has read states its ETag: otherwise the grant comes back that
        another administrator has taken meanwhile.
        """

    @route("PUT /users/{user}/quotas", "Set the quotas of a user", InvalidRequest, NotFound)
    async def set_quotas(self, user: UserName, wanted: QuotasBody) -> UserBody:
        """Replace all quotas of a user; they are in force on all services within seconds.

        A request beyond a quota gets 429 (42950) with `Retry-After`, and changes nothing.
        """

    @route(
        f"POST {TOKENS_PATH}",
        "Make a token",
        NotFound,
        PolicyViolation,
        status_code=201,
        response_description="The token, for the only time",
    )
    async def create_token(self, user: UserName, wanted: NewTokenBody) -> SecretBody:
        """Make a token for a user, who may have two at a time: the old one, and its successor.

        Services accept it within seconds. Without a response, list the tokens of the user, revoke
        the new one, and make another: its secret is lost. The route takes no `Idempotency-Key`,
        because a response that is kept would keep the secret.
        """

    @route(f"DELETE {TOKENS_PATH}/{{token_id}}", "Revoke a token", NotFound)
    async def revoke_token(self, user: UserName, token_id: TokenId) -> UserBody:
        """Revoke a token; services refuse it within seconds."""
