"""User routes, served by the active controller."""

from __future__ import annotations

import secrets
import time

import msgspec

from leadline_client.errors import NotFound
from leadline_common.access.principals import is_user_name
from leadline_common.access.rights import Grant
from leadline_common.access.tokens import RANDOM_BYTES, KeptToken, hash_of, new_token
from leadline_common.api import users as models
from leadline_common.quotas.limits import Limits
from leadline_controller.runtime.service import ControllerService
from leadline_controller.runtime.users import (
    AddToken,
    CreateUser,
    DeleteUser,
    KeptUser,
    ListUsers,
    RevokeToken,
    SetGrants,
    SetQuotas,
)


class UserEndpoints:
    """Implements `leadline_common.api.users.UserAdministration`."""

    _controller: ControllerService

    async def users(self) -> models.UsersBody:
        """Return all users."""
        found = await self._controller.ask(ListUsers())
        return models.UsersBody(users=[_user(name, user) for name, user in found.items()])

    async def user(self, user: str) -> models.UserBody:
        """Return a user."""
        names = (user,) if is_user_name(user) else ()
        found = await self._controller.ask(ListUsers(names))
        if user not in found:
            raise NotFound(f"there is no user {user!r}")
        return _user(user, found[user])

    async def create_user(self, new: models.NewUserBody) -> models.UserBody:
        """Create a user."""
        made = await self._controller.ask(CreateUser(new.name, _grants(new.grants)))
        return _user(new.name, made)

    async def delete_user(self, user: str) -> models.UserBody:
        """Delete a user."""
        return _user(user, await self._controller.ask(DeleteUser(user)))

    async def set_grants(self, user: str, wanted: models.GrantsBody) -> models.UserBody:
        """Replace the grants of a user."""
        changed = await self._controller.ask(SetGrants(user, _grants(wanted.grants)))
        return _user(user, changed)

    async def set_quotas(self, user: str, wanted: models.QuotasBody) -> models.UserBody:
        """Replace the quotas of a user."""
        return _user(
            user, await self._controller.ask(SetQuotas(user, Limits(**wanted.model_dump())))
        )

    async def create_token(self, user: str, wanted: models.NewTokenBody) -> models.SecretBody:
        """Make a token; its secret leaves this process in the response alone."""
        now_ms = _now_ms()
        expires_ms = None if wanted.expires_in_ms is None else now_ms + wanted.expires_in_ms
        token = new_token(secrets.token_bytes(RANDOM_BYTES))
        kept = KeptToken(token.id, hash_of(token), now_ms, expires_ms)
        await self._controller.ask(AddToken(user, kept))
        return models.SecretBody(id=token.id, token=str(token), expires_at=expires_ms)

    async def revoke_token(self, user: str, token_id: str) -> models.UserBody:
        """Revoke a token."""
        return _user(user, await self._controller.ask(RevokeToken(user, token_id)))


def _grants(wanted: list[models.GrantBody]) -> tuple[Grant, ...]:
    return tuple(
        Grant.of_all(one.role)
        if one.topics is None and one.groups is None
        else Grant(one.role, tuple(one.topics or ()), tuple(one.groups or ()))
        for one in wanted
    )


def _user(name: str, kept: KeptUser) -> models.UserBody:
    user, now_ms = kept.user, _now_ms()
    return models.UserBody(
        name=name,
        grants=[
            models.GrantBody(role=one.role, topics=list(one.topics), groups=list(one.groups))
            for one in user.grants
        ],
        tokens=[
            models.TokenBody(id=one.id, created_at=one.created_ms, expires_at=one.expires_ms)
            for one in user.tokens
            if one.is_alive(now_ms)
        ],
        quotas=models.QuotasBody(**msgspec.structs.asdict(user.quotas)),
        created_at=user.created_ms,
        version=kept.version,
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
